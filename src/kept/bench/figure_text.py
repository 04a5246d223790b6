"""Figures as text, for the tables of the terminal and of the report page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kept.bench.metrics import FIGURES, Figures

if TYPE_CHECKING:
    from kept.bench.measurement import FigureSummary, GradeFigures

MISSING = "–"
FIGURE_HEADERS = ("R@1", "R@5", "R@10", "R@2k", "all@5", "MRR", "nDCG")
"""Short names of `FIGURES`, in the same order."""


def figure_texts(figures: Figures) -> list[str]:
    return [f"{figures[name]:.3f}" if name in figures else MISSING for name in FIGURES]


def summary_texts(summary: FigureSummary) -> list[str]:
    """Return the number of queries, the figures, and the shares of correct and of wrong abstentions."""
    abstained = "/".join(percent_text(share) for share in (summary.abstained_rightly, summary.abstained_wrongly))
    return [f"{summary.queries:,}", *figure_texts(summary.figures), abstained]


def percent_text(share: float | None) -> str:
    return MISSING if share is None else f"{share:.0%}"


def right_text(figures: GradeFigures) -> str:
    return f"{figures.right / figures.hits:.0%} of {figures.hits:,}" if figures.hits else MISSING

"""Plots of the report page, from the measurement of a set."""

from __future__ import annotations

from kept.bench.curves import TOKEN_BUDGETS
from kept.bench.measurement import SetMeasurement
from kept.bench.svg_plot import Plot, PlotBar, PlotLine, PlotMark, PlotPoint
from kept.records import LIKELY_FROM, STRONG_FROM

_SCORE_TICKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
THRESHOLD_LABELS = {
    "answers_lost": "answers lost",
    "random_refused": "random words",
    "foreign_refused": "foreign questions",
    "adversarial_refused": "adversarial",
}
"""Label of each field of a ThresholdPoint that is plotted."""


def recall_plot(measurement: SetMeasurement, plot_id: str) -> Plot:
    """Return recall by the number of tokens returned. A point is hollow if most answers have less text than that."""
    return Plot(
        plot_id,
        "Recall by tokens returned",
        "One line per variant: mean recall of the hits that fit into the given number of tokens.",
        "tokens returned",
        (TOKEN_BUDGETS[0], 200, 500, 1_000, 2_000, TOKEN_BUDGETS[-1]),
        log_x=True,
        lines=tuple(
            PlotLine(name, tuple(PlotPoint(point.tokens, point.recall, point.filled < 0.5) for point in points))
            for name, points in measurement.recall_by_tokens.items()
        ),
    )


def calibration_plot(measurement: SetMeasurement, plot_id: str) -> Plot:
    return Plot(
        plot_id,
        "Correct first hits by score",
        "One bar per tenth of the score: share of the first hits that are right, with their number."
        f" Hits are likely from {LIKELY_FROM:g} and strong from {STRONG_FROM:g}.",
        "score of the first hit",
        _SCORE_TICKS,
        bars=tuple(
            PlotBar(score_bin.score_from, score_bin.score_to, score_bin.right / score_bin.hits, _count(score_bin.hits))
            for score_bin in measurement.calibration_curve
            if score_bin.hits
        ),
        marks=(
            PlotMark(LIKELY_FROM, f"likely from {LIKELY_FROM:g}"),
            PlotMark(STRONG_FROM, f"strong from {STRONG_FROM:g}"),
        ),
    )


def threshold_plot(measurement: SetMeasurement, plot_id: str) -> Plot:
    bound = max(measurement.min_score, LIKELY_FROM)
    points = {
        label: tuple(
            PlotPoint(point.min_score, share)
            for point in measurement.curve
            if (share := getattr(point, name)) is not None
        )
        for name, label in THRESHOLD_LABELS.items()
    }
    return Plot(
        plot_id,
        "Refused and lost by bound",
        "Share of each kind of query that gets only weak hits, by the score that separates weak from likely."
        f" The bound in use is {bound:g}.",
        "bound between weak and likely",
        _SCORE_TICKS,
        lines=tuple(PlotLine(label, line) for label, line in points.items() if line),
        marks=(PlotMark(bound, f"bound {bound:g}"),),
    )


def _count(number: int) -> str:
    """Return a number that fits above a bar."""
    return str(number) if number < 1_000 else f"{number / 1_000:.1f}k" if number < 10_000 else f"{number // 1_000}k"

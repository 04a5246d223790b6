"""What was measured, as JSON shows it. Programs rely on these names: some may be added, none changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kept.bench.calibration import ALLOWED_LOST, WANTED_REFUSED, Point
from kept.bench.measure import Measured, Summary
from kept.bench.metrics import FIGURES
from kept.bench.variants import KEPT


def sets_shape(measured: Sequence[Measured], *, jobs: int) -> dict[str, Any]:
    return {"sets": [set_shape(one) for one in measured], "jobs": jobs}


def set_shape(measured: Measured) -> dict[str, Any]:
    shape: dict[str, Any] = {"set": measured.name}
    for name, summary in measured.summaries.items():
        shape[name] = summary_shape(summary)
    shape[KEPT] |= _rounded(measured.latency) | {
        "unthresholded": _rounded(measured.unthresholded),
        "with_adversarial": _rounded(measured.with_adversarial),
    }
    shape["categories"] = {name: summary_shape(one) for name, one in measured.categories.items()}
    if measured.sessions:
        shape["sessions"] = _rounded(measured.sessions)
    if measured.audited:
        shape["audited"] = _rounded(measured.audited)
    return shape | {
        "documents": measured.documents,
        "queries": measured.queries,
        "unjudged": measured.unjudged,
        "asked_for": measured.asked_for,
        "index": _rounded(asdict(measured.index)),
        "min_score": measured.min_score,
        "curve": [_rounded(asdict(point)) for point in measured.curve],
        "calibration": calibration_shape(measured),
        "degraded": [*measured.degraded, *measured.failures],
    }


def summary_shape(summary: Summary) -> dict[str, Any]:
    # A query that cannot be answered has no recall; a category of such queries shows null, not 0.
    figures: dict[str, Any] = {name: summary.figures.get(name) for name in FIGURES}
    return _rounded(
        figures
        | {
            "queries": summary.queries,
            "answerable": summary.answerable,
            "abstained_rightly": summary.abstained_rightly,
            "abstained_wrongly": summary.abstained_wrongly,
        }
    )


def calibration_shape(measured: Measured) -> dict[str, Any]:
    """How the threshold in use stands against what is wanted of one, and the best there is."""
    now = next(point for point in measured.curve if point.min_score == measured.min_score)
    best = max(measured.curve, key=lambda point: (_is_good(point), refused(point) - (point.answers_lost or 0.0)))
    return {
        "wanted_refused": WANTED_REFUSED,
        "allowed_lost": ALLOWED_LOST,
        "refused": round(refused(now), 4),
        "lost": round(now.answers_lost or 0.0, 4),
        "holds": _is_good(now),
        "best": _rounded({"min_score": best.min_score, "refused": refused(best), "lost": best.answers_lost or 0.0}),
    }


def refused(point: Point) -> float:
    """Of both kinds of nonsense."""
    known = [share for share in (point.random_refused, point.foreign_refused) if share is not None]
    return sum(known) / len(known) if known else 0.0


def _is_good(point: Point) -> bool:
    return refused(point) >= WANTED_REFUSED and (point.answers_lost or 0.0) <= ALLOWED_LOST


def _rounded(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}

"""Measurements as JSON. Programs rely on these names: names may be added, but not changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kept.bench.measurement import FigureSummary, SetMeasurement
from kept.bench.metrics import FIGURES
from kept.bench.query_runner import KEPT
from kept.bench.threshold import ALLOWED_LOST, REQUIRED_REFUSED, ThresholdPoint
from kept.records import LIKELY_FROM


def sets_shape(measurements: Sequence[SetMeasurement], *, jobs: int) -> dict[str, Any]:
    return {"sets": [set_shape(measurement) for measurement in measurements], "jobs": jobs}


def set_shape(measurement: SetMeasurement) -> dict[str, Any]:
    shape: dict[str, Any] = {"set": measurement.name}
    for name, summary in measurement.summaries.items():
        shape[name] = summary_shape(summary)
    shape[KEPT] |= _rounded(measurement.latency) | {
        "unthresholded": _rounded(measurement.unthresholded),
        "with_adversarial": _rounded(measurement.with_adversarial),
    }
    shape["categories"] = {name: summary_shape(summary) for name, summary in measurement.categories.items()}
    if measurement.sessions:
        shape["sessions"] = _rounded(measurement.sessions)
    if measurement.audited:
        shape["audited"] = _rounded(measurement.audited)
    return shape | {
        "documents": measurement.documents,
        "queries": measurement.queries,
        "unjudged": measurement.unjudged,
        "asked_for": measurement.asked_for,
        "index": _rounded(asdict(measurement.index)),
        "min_score": measurement.min_score,
        "grades": {grade: {"hits": hits.hits, "right": hits.right} for grade, hits in measurement.grades.items()},
        "recall_by_tokens": {
            name: [_rounded(asdict(point)) for point in points] for name, points in measurement.recall_by_tokens.items()
        },
        "calibration_curve": [_rounded(asdict(score_bin)) for score_bin in measurement.calibration_curve],
        "curve": [_rounded(asdict(point)) for point in measurement.curve],
        "calibration": calibration_shape(measurement),
        "degraded": [*measurement.degraded, *measurement.failures],
    }


def summary_shape(summary: FigureSummary) -> dict[str, Any]:
    # A query that cannot be answered has no recall: a category of such queries has null, not 0.
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


def calibration_shape(measurement: SetMeasurement) -> dict[str, Any]:
    """Compare the threshold in use with what is required of one, and with the best one on the curve."""
    current = next(point for point in measurement.curve if point.min_score == max(measurement.min_score, LIKELY_FROM))
    best = max(measurement.curve, key=lambda point: (_is_good(point), refused(point) - (point.answers_lost or 0.0)))
    return {
        "wanted_refused": REQUIRED_REFUSED,
        "allowed_lost": ALLOWED_LOST,
        "refused": round(refused(current), 4),
        "lost": round(current.answers_lost or 0.0, 4),
        "holds": _is_good(current),
        "best": _rounded({"min_score": best.min_score, "refused": refused(best), "lost": best.answers_lost or 0.0}),
    }


def refused(point: ThresholdPoint) -> float:
    """Return the share of nonsense that is refused, the mean of both kinds."""
    known = [share for share in (point.random_refused, point.foreign_refused) if share is not None]
    return sum(known) / len(known) if known else 0.0


def _is_good(point: ThresholdPoint) -> bool:
    return refused(point) >= REQUIRED_REFUSED and (point.answers_lost or 0.0) <= ALLOWED_LOST


def _rounded(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}

"""Fusion: two scores become one, and the same code that computes it explains it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from kept.records import DropReason, ScorePart
from kept.values import frozen

RRF_K = 60
RECENCY_SHARE = 0.02
"""The most that being recent can add: enough to break a tie, not enough to overturn a better match."""
RECENCY_HALF_LIFE_DAYS = 30.0
SAME_TEXT = 0.85
"""Two texts that share this much of their words are near-duplicates."""


@frozen
class Candidate:
    row: int
    vector: float | None
    """Calibrated similarity; None where there is none to compare with."""
    text: float | None
    age_days: float
    matched: tuple[str, ...] = ()
    """The words it has."""


@frozen
class Weights:
    vector: float
    text: float


@frozen
class Scored:
    candidate: Candidate
    score: float
    relevance: float
    """The score without what recency adds: what the threshold is applied to."""
    shares: tuple[float, float, float]
    """What meaning, words and recency contribute."""
    reasons: Callable[[], tuple[str, str]]
    """Why the first two do. Put into words for those that are shown, not for all that were looked at."""
    further: tuple[ScorePart, ...] = ()
    """What was added since."""

    def parts(self) -> tuple[ScorePart, ...]:
        """The score taken apart: these add up to it."""
        names, reasons = ("vector", "text", "recency"), (*self.reasons(), _age(self.candidate.age_days))
        return (*(ScorePart(*part) for part in zip(names, self.shares, reasons, strict=True)), *self.further)

    def plus(self, part: ScorePart, *, relevance: float = 0.0) -> Scored:
        """The same with a further part, of which so much counts for the threshold as well."""
        return replace(
            self,
            score=self.score + part.value,
            relevance=self.relevance + relevance,
            further=(*self.further, part),
        )


def fuse_weighted(candidates: Sequence[Candidate], weights: Weights) -> list[Scored]:
    """A weighted sum of two scores that are both calibrated, best first.

    What has no vector, because it waits for one, is judged by its words alone.
    """
    scored = []
    for one in candidates:
        vector, text = (weights.vector, weights.text) if one.vector is not None else (0.0, 1.0)
        reasons = partial(_weighted_reasons, one, vector, text)
        scored.append(_scored(one, vector * (one.vector or 0.0), text * (one.text or 0.0), reasons))
    return _ranked(scored)


def fuse_rrf(candidates: Sequence[Candidate], weights: Weights) -> list[Scored]:
    """Reciprocal ranks instead of scores, scaled so that first on both sides is 1."""
    vector = _ranks(candidates, lambda one: one.vector)
    text = _ranks(candidates, lambda one: one.text)
    scored = []
    for one in candidates:
        ranks = (vector.get(one.row), text.get(one.row))
        shares = _rank_share(weights.vector, ranks[0]), _rank_share(weights.text, ranks[1])
        scored.append(_scored(one, shares[0], shares[1], partial(_rank_reasons, *ranks)))
    return _ranked(scored)


def _rank_share(weight: float, rank: int | None) -> float:
    return weight * (RRF_K + 1) / (RRF_K + rank) if rank else 0.0


def _rank_reasons(vector: int | None, text: int | None) -> tuple[str, str]:
    return f"rank {vector}" if vector else "not found", f"rank {text}" if text else "not found"


def _ranks(candidates: Sequence[Candidate], score: Callable[[Candidate], float | None]) -> dict[int, int]:
    found = [(value, one.row) for one in candidates if (value := score(one))]
    return {row: at for at, (_, row) in enumerate(sorted(found, key=lambda one: (-one[0], one[1])), start=1)}


def _scored(one: Candidate, vector: float, text: float, reasons: Callable[[], tuple[str, str]]) -> Scored:
    relevance = min(1.0, vector + text)
    recency = 0.5 ** (max(0.0, one.age_days) / RECENCY_HALF_LIFE_DAYS)
    boost = min(RECENCY_SHARE * recency, 1.0 - relevance)
    return Scored(one, relevance + boost, relevance, (vector, text, boost), reasons)


def _age(days: float) -> str:
    whole = max(0, int(days))
    return "from today" if whole == 0 else f"{whole} day{'' if whole == 1 else 's'} old"


def _ranked(scored: Iterable[Scored]) -> list[Scored]:
    return sorted(scored, key=lambda one: (-one.score, one.candidate.row))


def _weighted_reasons(one: Candidate, vector: float, text: float) -> tuple[str, str]:
    return _detail(vector, one.vector), _detail(text, one.text, ", ".join(one.matched[:8]))


def _detail(weight: float, score: float | None, extra: str = "") -> str:
    if score is None:
        return "not compared"
    return f"{weight:.2f} × {score:.3f}" + (f" ({extra})" if extra else "")


def select(
    ranked: Sequence[Scored], *, min_score: float, max_results: int, words_of: Callable[[int], frozenset[str]]
) -> tuple[list[Scored], list[tuple[Scored, DropReason]]]:
    """Those that are returned, and why each of the others is not.

    A near-duplicate of a better hit steps back behind everything else; it is returned where there is room.
    """
    kept: list[Scored] = []
    repeats: list[Scored] = []
    dropped: list[tuple[Scored, DropReason]] = []
    for one in ranked:
        if one.relevance < min_score:
            dropped.append((one, "below min_score"))
        elif len(kept) >= max_results:
            dropped.append((one, "beyond max_results"))
        elif any(_alike(words_of(one.candidate.row), words_of(other.candidate.row)) for other in kept):
            repeats.append(one)
        else:
            kept.append(one)
    room = max_results - len(kept)
    dropped.extend((one, "near-duplicate") for one in repeats[room:])
    return kept + repeats[:room], dropped


def _alike(left: frozenset[str], right: frozenset[str]) -> bool:
    if not left or not right:
        return left == right
    shared = len(left & right)
    return shared >= SAME_TEXT * (len(left) + len(right) - shared)

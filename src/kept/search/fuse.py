"""Fusion: all evidence becomes one score, and the same code that computes it explains it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from kept.records import DropReason, ScorePart
from kept.search.evidence import Candidate, Place
from kept.search.weights import NOTES, TURNS
from kept.values import frozen

RRF_K = 60
RECENCY_SHARE = 0.02
"""The most that being recent can add: enough to break a tie, not enough to overturn a better match."""
RECENCY_HALF_LIFE_DAYS = 30.0
_ROUNDING = 1e-9
"""What is worth exactly the threshold passes it, whatever the order was in which its parts were added up."""
SAME_TEXT = 0.85
"""Two texts that share this much of their words are near-duplicates."""


@frozen
class FusionWeights:
    vector: float
    text: float

    def scaled(self, trust: float) -> FusionWeights:
        vector = min(1.0, self.vector * trust)
        return FusionWeights(vector, 1.0 - vector)


Addend = tuple[str, float, float]
"""Its name, how much it counts, and the figure from 0 to 1 that it counts for."""


@frozen
class Scored:
    candidate: Candidate
    score: float
    relevance: float
    """The score without what recency adds: what the threshold is applied to."""
    text: float | None
    """What its words say, from 0 to 1; None where it has none of them."""
    vector: float | None
    """What its meaning says; None where there is none to compare with."""
    explain: Callable[[], tuple[ScorePart, ...]]
    """Puts into words what the score is made of: for those that are shown, not for all that were looked at."""
    further: tuple[ScorePart, ...] = ()
    """What was added since."""

    def rank(self) -> tuple[float, Place]:
        """The best first; of equal scores, by path and line, so that the order of indexing does not show."""
        return -self.score, self.candidate.place

    def parts(self) -> tuple[ScorePart, ...]:
        """The score taken apart: these add up to it."""
        return (*self.explain(), *self.further)

    def plus(self, part: ScorePart, *, relevance: float = 0.0) -> Scored:
        """The same with a further part, of which so much counts for the threshold as well."""
        return replace(
            self,
            score=self.score + part.value,
            relevance=self.relevance + relevance,
            further=(*self.further, part),
        )


def fuse_weighted(
    candidates: Sequence[Candidate], weights: FusionWeights, *, turns: FusionWeights | None = None
) -> list[Scored]:
    """A weighted sum of everything that is known of a candidate, best first. ``turns`` are the weights for turns of a
    conversation, where they are others.

    What has no vector, because it waits for one, is judged by its words alone.
    """
    words, turns = FusionWeights(0.0, 1.0), turns or weights
    return _ranked(
        _weighted(one, words if not one.has_vector else turns if one.is_turn else weights) for one in candidates
    )


def _weighted(one: Candidate, weights: FusionWeights) -> Scored:
    text, vector, against = _addends(one)
    words = sum([share * figure for _, share, figure in text])
    meaning = sum([share * figure for _, share, figure in vector])
    found = weights.text * words + weights.vector * meaning
    held = sum([share * figure for _, share, figure in against])
    return _scored(one, max(0.0, found - held), words, meaning, partial(_weighted_parts, one, weights))


def _addends(one: Candidate) -> tuple[list[Addend], list[Addend], list[Addend]]:
    """What the words say, what the meaning says, and what is held against it."""
    mix, evidence = TURNS if one.is_turn else NOTES, one.evidence
    text = [
        ("words", mix.words, evidence.words),
        ("coverage", mix.coverage, evidence.coverage),
        ("around", mix.around, evidence.around),
        ("reach", mix.reach, evidence.reach),
    ]
    vector = [("meaning", mix.meaning, evidence.meaning)]
    if not one.is_turn:
        return text, vector, []
    text.append(("answers", mix.answers, evidence.answers))
    vector.append(("beside", mix.beside, evidence.beside))
    against = [
        ("question", mix.asks, evidence.asks),
        ("speaker", mix.other_speaker, evidence.other_speaker),
        ("machine", mix.machine, evidence.machine),
    ]
    return text, vector, against


def _weighted_parts(one: Candidate, weights: FusionWeights) -> tuple[ScorePart, ...]:
    text, vector, against = _addends(one)
    parts = [_part(name, weights.text * share, figure) for name, share, figure in text if share]
    parts += [_part(name, weights.vector * share, figure) for name, share, figure in vector if share]
    room = sum(part.value for part in parts)
    for name, share, figure in against:
        if figure:
            held = min(room, share * figure)
            room -= held
            parts.append(ScorePart(name, -held, _AGAINST[name]))
    if one.matched:
        parts[0] = replace(parts[0], detail=f"{parts[0].detail} ({', '.join(one.matched[:8])})")
    return tuple(parts)


_AGAINST = {
    "question": "it asks, and does not answer",
    "speaker": "said by another than the one named",
    "machine": "not said by a person",
}


def _part(name: str, share: float, figure: float) -> ScorePart:
    return ScorePart(name, share * figure, f"{share:.2f} × {figure:.3f}")


def fuse_rrf(candidates: Sequence[Candidate], weights: FusionWeights) -> list[Scored]:
    """Reciprocal ranks instead of scores, scaled so that first on both sides is 1."""
    weighted = [_weighted(one, weights) for one in candidates]
    vector = _ranks((one.vector if one.candidate.has_vector else None, one.candidate) for one in weighted)
    text = _ranks((one.text, one.candidate) for one in weighted)
    scored = []
    for one in weighted:
        row = one.candidate.row
        shares = _rank_share(weights.vector, vector.get(row)), _rank_share(weights.text, text.get(row))
        explain = partial(_rank_parts, shares, (vector.get(row), text.get(row)))
        scored.append(_scored(one.candidate, sum(shares), one.text, one.vector, explain))
    return _ranked(scored)


def _rank_share(weight: float, rank: int | None) -> float:
    return weight * (RRF_K + 1) / (RRF_K + rank) if rank else 0.0


def _rank_parts(shares: tuple[float, float], ranks: tuple[int | None, int | None]) -> tuple[ScorePart, ...]:
    return tuple(
        ScorePart(name, share, f"rank {rank}" if rank else "not found")
        for name, share, rank in zip(("meaning", "words"), shares, ranks, strict=True)
    )


def _ranks(figures: Iterable[tuple[float | None, Candidate]]) -> dict[int, int]:
    found = sorted((-value, candidate.place, candidate.row) for value, candidate in figures if value)
    return {row: at for at, (_, _, row) in enumerate(found, start=1)}


def _scored(
    one: Candidate,
    relevance: float,
    text: float | None,
    vector: float | None,
    explain: Callable[[], tuple[ScorePart, ...]],
) -> Scored:
    relevance = min(1.0, relevance)
    recency = 0.5 ** (max(0.0, one.age_days) / RECENCY_HALF_LIFE_DAYS)
    boost = min(RECENCY_SHARE * recency, 1.0 - relevance)
    return Scored(
        one,
        relevance + boost,
        relevance,
        text if one.matched else None,
        vector if one.has_vector else None,
        partial(_with_recency, explain, boost, one.age_days),
    )


def _with_recency(explain: Callable[[], tuple[ScorePart, ...]], boost: float, age_days: float) -> tuple[ScorePart, ...]:
    return (*explain(), ScorePart("recency", boost, _age(age_days)))


def _age(days: float) -> str:
    whole = max(0, int(days))
    return "from today" if whole == 0 else f"{whole} day{'' if whole == 1 else 's'} old"


def _ranked(scored: Iterable[Scored]) -> list[Scored]:
    return sorted(scored, key=Scored.rank)


class ResultLimits(Protocol):
    """What is shown so far: a hit may show its neighbours too."""

    def covers(self, row: int) -> bool: ...

    def open(self, row: int) -> None: ...


def select(
    ranked: Sequence[Scored],
    *,
    min_score: float,
    max_results: int,
    words_of: Callable[[int], frozenset[str]],
    showing: ResultLimits,
) -> tuple[list[Scored], list[tuple[Scored, DropReason]]]:
    """Those that are returned, and why each of the others is not.

    A near-duplicate of a better hit steps back behind everything else; it is returned where there is room.
    """
    kept: list[Scored] = []
    repeats: list[Scored] = []
    dropped: list[tuple[Scored, DropReason]] = []
    for one in ranked:
        row = one.candidate.row
        if one.relevance < min_score - _ROUNDING:
            dropped.append((one, "below min_score"))
        elif showing.covers(row):
            dropped.append((one, "shown with a better hit"))
        elif len(kept) >= max_results:
            dropped.append((one, "beyond max_results"))
        elif any(_alike(words_of(row), words_of(other.candidate.row)) for other in kept):
            repeats.append(one)
        else:
            kept.append(one)
            showing.open(row)
    for one in repeats:
        if showing.covers(one.candidate.row):
            dropped.append((one, "shown with a better hit"))
        elif len(kept) >= max_results:
            dropped.append((one, "near-duplicate"))
        else:
            kept.append(one)
            showing.open(one.candidate.row)
    return kept, dropped


def _alike(left: frozenset[str], right: frozenset[str]) -> bool:
    if not left or not right:
        return left == right
    shared = len(left & right)
    return shared >= SAME_TEXT * (len(left) + len(right) - shared)

"""Scores: all evidence becomes one figure. Code that computes a score explains it too.

**Fusion** adds up the evidence for each candidate of one query, by the numbers in `weights`. `confidence` makes the
figures of two queries comparable. All of this is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from kept.base.records import ScorePart
from kept.base.values import frozen
from kept.base.visibility import PROJECTS_FOLDER, ProjectScope
from kept.config import QuerySettings
from kept.search.candidates import Candidate, QueryVector
from kept.search.weights import (
    COVERED_TRUST,
    NOTES,
    PROJECT_SHARE,
    RECENCY_HALF_LIFE_DAYS,
    RECENCY_SHARE,
    UNCOVERED_TRUST,
    UTTERANCE_TRUST,
    UTTERANCES,
)

PARTS_OUTSIDE_THRESHOLD = ("recency", "when", "project")
"""Parts of a score that affect the order, but not whether a hit passes ``min_score``."""


@frozen
class FusionWeights:
    """Shares of meaning and words in a score. They sum to 1."""

    vector: float
    text: float

    def scaled(self, trust: float) -> FusionWeights:
        """Return weights with the share of meaning multiplied by ``trust``, at most 1."""
        vector = min(1.0, self.vector * trust)
        return FusionWeights(vector, 1.0 - vector)


Addend = tuple[str, float, float]
"""Name of a part, its weight, and its figure from 0 to 1."""


@frozen
class Scored:
    """A candidate with its score."""

    candidate: Candidate
    score: float
    relevance: float
    """Score without the parts for recency, period and project. ``min_score`` is compared with it."""
    text: float | None
    """Score of its words, from 0 to 1; None if it has none of them."""
    vector: float | None
    """Score of its meaning, from 0 to 1; None if it has no vector."""
    explain: Callable[[], tuple[ScorePart, ...]]
    """Returns the parts of the score. They are put into words only for the few candidates that are returned."""
    added: tuple[ScorePart, ...] = ()
    """Parts that were added after fusion."""
    unscaled: float | None = None
    """Relevance before it was scaled to a confidence, which sets hits after the first apart. None before that."""

    def parts(self) -> tuple[ScorePart, ...]:
        """Return the parts of the score. They add up to it."""
        return (*self.explain(), *self.added)

    def plus(self, part: ScorePart, *, relevance: float = 0.0) -> Scored:
        """Return a copy with a further part, and with ``relevance`` added to the relevance."""
        return replace(
            self,
            score=self.score + part.value,
            relevance=self.relevance + relevance,
            added=(*self.added, part),
        )


def rank(scored: Iterable[Scored]) -> list[Scored]:
    """Sort by score, best first. Ties go by path and line, so that the order of indexing does not matter."""
    return sorted(scored, key=lambda item: (-item.score, item.candidate.position))


# fusion


def fuse_pool(candidates: Sequence[Candidate], settings: QuerySettings, vector: QueryVector | None) -> list[Scored]:
    """Return the candidates with their scores, best first.

    The fewer of the query's words any note has, the more the embedder is trusted with notes.
    """
    share = vector_share(settings, vector)
    weights = FusionWeights(share, 1.0 - share)
    if vector is not None and settings.hybrid.vector_weight != "auto":
        return fuse_weighted(candidates, weights)
    covered = max((candidate.evidence.coverage for candidate in candidates if not candidate.is_utterance), default=0.0)
    trust = COVERED_TRUST + UNCOVERED_TRUST * (1.0 - covered)
    return fuse_weighted(candidates, weights.scaled(trust), utterances=weights.scaled(UTTERANCE_TRUST))


def vector_share(settings: QuerySettings, vector: QueryVector | None) -> float:
    """Return the share of meaning in a score: the one in the settings, or else the one measured for the embedder."""
    if vector is None:
        return 0.0
    fixed = settings.hybrid.vector_weight
    return vector.calibration.weight if fixed == "auto" else float(fixed)


# the weighted sum


def fuse_weighted(
    candidates: Sequence[Candidate], weights: FusionWeights, *, utterances: FusionWeights | None = None
) -> list[Scored]:
    """Return the candidates scored by the weighted sum of their evidence, best first.

    ``utterances`` are the weights for utterances if they differ. A candidate that still waits for its vector is judged
    by its words alone.
    """
    # Without a vector, the share of the meaning would be a penalty for being new.
    words_only, utterances = FusionWeights(0.0, 1.0), utterances or weights
    return rank(
        _score_weighted(
            candidate,
            words_only if not candidate.has_vector else utterances if candidate.is_utterance else weights,
        )
        for candidate in candidates
    )


def _score_weighted(candidate: Candidate, weights: FusionWeights) -> Scored:
    text, vector, penalty = _sums(candidate)
    relevance = min(1.0, max(0.0, weights.text * text + weights.vector * vector - penalty))
    recency = 0.5 ** (max(0.0, candidate.age_days) / RECENCY_HALF_LIFE_DAYS)
    boost = min(RECENCY_SHARE * recency, 1.0 - relevance)  # a score is at most 1
    return Scored(
        candidate,
        relevance + boost,
        relevance,
        text if candidate.matched or candidate.expansions else None,
        vector if candidate.has_vector else None,
        partial(_explain, candidate, weights, boost),
    )


def _sums(candidate: Candidate) -> tuple[float, float, float]:
    """Return the sums of `_addends`, in the same order of addition, without naming the parts of every candidate."""
    weights, evidence = UTTERANCES if candidate.is_utterance else NOTES, candidate.evidence
    text = (
        weights.words * evidence.words
        + weights.coverage * evidence.coverage
        + weights.around * evidence.around
        + weights.reach * evidence.reach
    )
    vector = weights.meaning * evidence.meaning
    if not candidate.is_utterance:
        return text, vector, 0.0
    penalty = (
        weights.asks * evidence.asks
        + weights.other_speaker * evidence.other_speaker
        + weights.machine * evidence.machine
    )
    return text + weights.answers * evidence.answers, vector + weights.beside * evidence.beside, penalty


def _addends(candidate: Candidate) -> tuple[list[Addend], list[Addend], list[Addend]]:
    """Return the addends of the words, those of the meaning, and the penalties."""
    weights, evidence = UTTERANCES if candidate.is_utterance else NOTES, candidate.evidence
    text = [
        ("words", weights.words, evidence.words),
        ("coverage", weights.coverage, evidence.coverage),
        ("around", weights.around, evidence.around),
        ("reach", weights.reach, evidence.reach),
    ]
    vector = [("meaning", weights.meaning, evidence.meaning)]
    if not candidate.is_utterance:
        return text, vector, []
    text.append(("answers", weights.answers, evidence.answers))
    vector.append(("beside", weights.beside, evidence.beside))
    penalties = [
        ("question", weights.asks, evidence.asks),
        ("speaker", weights.other_speaker, evidence.other_speaker),
        ("machine", weights.machine, evidence.machine),
    ]
    return text, vector, penalties


def _explain(candidate: Candidate, weights: FusionWeights, boost: float) -> tuple[ScorePart, ...]:
    """Return the parts of a score. They are put into words only for the few candidates that are returned."""
    text, vector, penalties = _addends(candidate)
    shares = [(name, weights.text * weight, figure) for name, weight, figure in text if weight]
    shares += [(name, weights.vector * weight, figure) for name, weight, figure in vector if weight]
    parts = [ScorePart(name, share * figure, f"{share:.2f} × {figure:.3f}") for name, share, figure in shares]
    rest = sum(part.value for part in parts)  # a score is not negative, so penalties take no more than this
    for name, weight, figure in penalties:
        if figure:
            penalty = min(rest, weight * figure)
            rest -= penalty
            parts.append(ScorePart(name, -penalty, _PENALTIES[name]))
    words = [*candidate.matched, *map(str, candidate.expansions)]
    if words:
        parts[0] = replace(parts[0], detail=f"{parts[0].detail} ({', '.join(words[:8])})")
    days = max(0, int(candidate.age_days))
    age = "from today" if days == 0 else f"{days} day{'' if days == 1 else 's'} old"
    return (*parts, ScorePart("recency", boost, age))


_PENALTIES = {
    "question": "it asks, and does not answer",
    "speaker": "said by another than the one named",
    "machine": "not said by a person",
}


# the project that the search is made in


def prefer_project(ranked: Sequence[Scored], scope: ProjectScope) -> list[Scored]:
    """Add to the score of the notes and conversations of a project, and rank again."""
    prefix = f"{PROJECTS_FOLDER}/{scope.name}/"
    preferred: list[Scored] = []
    for scored in ranked:
        path = scored.candidate.position[0]
        gain = min(PROJECT_SHARE, 1.0 - scored.score)
        if gain > 0 and (path.startswith(prefix) or path in scope.own_transcripts):
            scored = scored.plus(ScorePart("project", gain, f"of the project {scope.name}"))
        preferred.append(scored)
    return rank(preferred)

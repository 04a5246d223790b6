"""Scores: all evidence becomes one figure. Code that computes a score explains it too.

**Fusion** adds up the evidence for each candidate of one query, by the numbers in `weights`. `confidence` makes the
figures of two queries comparable. All of this is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from kept.base.clock import DAY_MS
from kept.base.records import ScorePart
from kept.base.values import frozen
from kept.base.visibility import PROJECTS_FOLDER, ProjectScope
from kept.config import QuerySettings
from kept.index.sqlite.rows import ChunkRow
from kept.search.candidates import CandidatePool, Evidence, QueryVector
from kept.search.weights import (
    COVERED_TRUST,
    NOTES,
    PROJECT_SHARE,
    RECENCY_HALF_LIFE_DAYS,
    RECENCY_SHARE,
    UNCOVERED_TRUST,
    UTTERANCE_TRUST,
    UTTERANCES,
    EvidenceWeights,
)

PARTS_OUTSIDE_THRESHOLD = ("recency", "when", "project")
"""Parts of a score that affect the order, but not whether a hit passes ``min_score``."""


@frozen
class Scored:
    """A candidate with its score."""

    chunk: ChunkRow
    evidence: Evidence
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

    def plus(self, name: str, gain: float, why: str, *, relevance: float = 0.0) -> Scored:
        """Return a copy with a further part, and with ``relevance`` added to the relevance."""
        return replace(
            self,
            score=self.score + gain,
            relevance=self.relevance + relevance,
            added=(*self.added, ScorePart(name, gain, why)),
        )

    def boosted(self, name: str, gain: float, why: str) -> Scored:
        """Return a copy with a higher score, at most 1, and the same relevance."""
        gain = min(gain, 1.0 - self.score)
        return self.plus(name, gain, why) if gain > 0 else self

    def at_least(self, score: float, relevance: float, name: str, why: str) -> Scored:
        """Return a copy with at least this score and relevance."""
        gain = max(0.0, score - self.score)
        return self.plus(name, gain, why, relevance=max(0.0, relevance - self.relevance))

    def at_most(self, score: float, relevance: float, name: str, why: str) -> Scored:
        """Return a copy with at most this score, which does not become negative, and at most this relevance."""
        loss = max(-self.score, min(0.0, score - self.score))
        return self.plus(name, loss, why, relevance=min(0.0, relevance - self.relevance))


def rank(scored: Iterable[Scored]) -> list[Scored]:
    """Sort by score, best first. Ties go by path and line, so that the order of indexing does not matter."""
    return sorted(scored, key=lambda item: (-item.score, item.chunk.path, item.chunk.start_line, item.chunk.row))


# the weighted sum


def fuse_pool(
    pool: CandidatePool,
    evidence: Mapping[int, Evidence],
    settings: QuerySettings,
    vector: QueryVector | None,
    *,
    now_ms: int,
) -> list[Scored]:
    """Return the candidates that there is evidence for with their scores, best first.

    The fewer of the query's words any note has, the more the embedder is trusted with notes. A candidate that still
    waits for its vector is judged by its words alone: the share of the meaning would be a penalty for being new.
    """
    notes = utterances = vector_share(settings, vector)
    if settings.hybrid.vector_weight == "auto":
        coverages = (figures.coverage for row, figures in evidence.items() if pool.chunks[row].source != "sessions")
        trust = COVERED_TRUST + UNCOVERED_TRUST * (1.0 - max(coverages, default=0.0))
        notes, utterances = min(1.0, notes * trust), min(1.0, utterances * UTTERANCE_TRUST)
    ranked = []
    for row, figures in evidence.items():
        chunk = pool.chunks[row]
        share = utterances if chunk.source == "sessions" else notes
        meaning_share = share if row in pool.meaning else None
        ranked.append(score_chunk(chunk, figures, meaning_share, now_ms))
    return rank(ranked)


def vector_share(settings: QuerySettings, vector: QueryVector | None) -> float:
    """Return the share of meaning in a score: the one in the settings, or else the one measured for the embedder."""
    if vector is None:
        return 0.0
    fixed = settings.hybrid.vector_weight
    return vector.calibration.weight if fixed == "auto" else float(fixed)


def score_chunk(chunk: ChunkRow, evidence: Evidence, meaning_share: float | None, now_ms: int) -> Scored:
    """Return the weighted sum of the evidence. ``meaning_share`` is None for a chunk without a vector."""
    weights, share = UTTERANCES if chunk.source == "sessions" else NOTES, meaning_share or 0.0
    text, meaning, penalty = (
        sum([weight * getattr(evidence, name) for name, weight in side.items()])
        for side in (weights.text, weights.meaning, weights.penalties)
    )
    relevance = min(1.0, max(0.0, (1.0 - share) * text + share * meaning - penalty))
    age_days = max(0.0, (now_ms - chunk.timestamp_ms) / DAY_MS)
    recency = RECENCY_SHARE * 0.5 ** (age_days / RECENCY_HALF_LIFE_DAYS)
    boost = min(recency, 1.0 - relevance)  # a score is at most 1
    return Scored(
        chunk,
        evidence,
        relevance + boost,
        relevance,
        text if evidence.matched or evidence.expansions else None,
        None if meaning_share is None else meaning,
        partial(_explain, evidence, weights, share, boost, int(age_days)),
    )


def _explain(
    evidence: Evidence, weights: EvidenceWeights, meaning_share: float, boost: float, days: int
) -> tuple[ScorePart, ...]:
    """Return the parts of a score. They are put into words only for the few candidates that are returned."""
    parts = []
    for share, side in ((1.0 - meaning_share, weights.text), (meaning_share, weights.meaning)):
        for name, weight in side.items():
            figure = getattr(evidence, name)
            parts.append(ScorePart(name, share * weight * figure, f"{share * weight:.2f} × {figure:.3f}"))
    rest = sum(part.value for part in parts)  # a score is not negative, so penalties take no more than this
    for name, weight in weights.penalties.items():
        if figure := getattr(evidence, name):
            penalty = min(rest, weight * figure)
            rest -= penalty
            parts.append(ScorePart(name, -penalty, _PENALTIES[name]))
    if words := [*evidence.matched, *map(str, evidence.expansions)]:
        parts[0] = replace(parts[0], detail=f"{parts[0].detail} ({', '.join(words[:8])})")
    age = f"{days} day{'' if days == 1 else 's'} old" if days else "from today"
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
    return rank(
        scored.boosted("project", PROJECT_SHARE, f"of the project {scope.name}")
        if scored.chunk.path.startswith(prefix) or scored.chunk.path in scope.own_transcripts
        else scored
        for scored in ranked
    )

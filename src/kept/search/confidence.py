"""Confidence that a query has an answer here, so that a score means the same for every query. Pure.

The sums that rank the candidates of one query cannot be compared with those of another: a well-answered question of
twenty words gets a lower sum than three words that happen to be in a text. So all scores of a query are scaled by one
factor, until the best equals the probability that there is an answer. The order does not change.

Random words are in the notes too, but seldom in one passage; a question about another subject shares a few words with
some passage, but not its meaning. Hence the signals: the share of the query that the best passage has, the number of
its words in one passage, and the similarity of the nearest passage in meaning. The coefficients are in `weights`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from kept.records import ScorePart
from kept.search.fuse import Scored
from kept.search.keyword import WeightedTerm
from kept.search.weights import (
    ALL_WORDS_CONFIDENCE,
    MAX_SMALL_MEMORY_BONUS,
    ONE_OF_TWO_CONFIDENCE,
    ONE_OF_TWO_SHARE,
    SMALL_MEMORY_FACTOR,
    SMALL_MEMORY_PASSAGES,
    WITH_MEANING,
    WORDS_ONLY,
    ConfidenceModel,
)
from kept.values import frozen

PARTS_OUTSIDE_THRESHOLD = ("recency", "when", "same note")
"""Parts of a score that affect the order, but not whether a hit passes ``min_score``."""

_PART = "fit"
_ALL = 0.999


@frozen
class Signals:
    """Figures that tell an answer from chance."""

    share: float
    """Largest share of the query, weighted by rarity, that a passage has together with its context."""
    together: float
    """Largest number of the query's words in one passage."""
    meaning: float | None
    """Similarity of the nearest passage; None if no vectors were compared."""
    passages: int = SMALL_MEMORY_PASSAGES
    """Number of passages in the index."""
    query_words: int = 0
    """Number of words in the query, without stopwords."""
    unspaced: float = 0.0
    """For a query in an unspaced script, the best sum itself: learning gave nothing better for pairs of characters."""

    @property
    def has_all_words(self) -> bool:
        return self.share >= _ALL

    @property
    def least_confidence(self) -> float:
        if self.has_all_words:
            return ALL_WORDS_CONFIDENCE
        is_one_of_two = 0 < self.query_words <= 2 and self.share >= ONE_OF_TWO_SHARE
        return ONE_OF_TWO_CONFIDENCE if is_one_of_two else 0.0


def read_signals(ranked: Sequence[Scored], terms: Sequence[WeightedTerm], *, passages: int) -> Signals:
    """Return the signals of the candidates of a query. ``passages`` is the number of passages in the index."""
    candidates = [scored.candidate for scored in ranked]
    counts = _count_terms(terms)
    return Signals(
        share=max((candidate.evidence.reach for candidate in candidates), default=0.0),
        together=max((sum(map(counts.__getitem__, {*candidate.matched})) for candidate in candidates), default=0.0),
        meaning=max((candidate.evidence.meaning for candidate in candidates if candidate.has_vector), default=None),
        passages=passages,
        query_words=round(sum(counts.values())),
        unspaced=max((scored.relevance for scored in ranked), default=0.0) if _is_unspaced(terms) else 0.0,
    )


def _count_terms(terms: Sequence[WeightedTerm]) -> dict[str, float]:
    """Return 1 for each term, but 0 for a compound, such as an identifier, whose parts are terms as well."""
    texts = {weighted.term.text for weighted in terms}
    counts = {}
    for text in texts:
        parts = text.split()
        is_compound = len(parts) > 1 and texts.issuperset(parts)
        counts[text] = 0.0 if is_compound else 1.0
    return counts


def _is_unspaced(terms: Sequence[WeightedTerm]) -> bool:
    return 2 * sum(weighted.term.kind in ("pair", "prefix") for weighted in terms) >= len(terms) > 0


def estimate_confidence(signals: Signals, *, vector_share: float, model: ConfidenceModel | None = None) -> float:
    """Return the probability that there is an answer, from 0 to 1.

    ``vector_share`` is the weight of the embedder. Similarity alone gives this share of its value.
    """
    model = model or (WORDS_ONLY if signals.meaning is None else WITH_MEANING)
    meaning_alone = vector_share * (signals.meaning or 0.0)
    return max(_probability(signals, model), meaning_alone, signals.unspaced, signals.least_confidence)


def _probability(signals: Signals, model: ConfidenceModel) -> float:
    logit = model.base + model.share * signals.share + model.together * math.log1p(signals.together)
    logit += model.meaning * (signals.meaning or 0.0)
    return 1 / (1 + math.exp(-(logit + _small_memory_bonus(signals.passages))))


def _small_memory_bonus(passages: int) -> float:
    ratio = SMALL_MEMORY_PASSAGES / max(1, passages)
    return min(MAX_SMALL_MEMORY_BONUS, SMALL_MEMORY_FACTOR * math.log(max(1.0, ratio)))


def confidence_after_reranking(
    confidence: float, before: Sequence[Scored], after: Sequence[Scored], weight: float
) -> float:
    """Return the confidence once a model has read the best passages: its judgement of the first counts here too."""
    if not after:
        return confidence
    first = after[0]
    before_relevance = next(scored.relevance for scored in before if scored.candidate.row == first.candidate.row)
    if first.relevance == before_relevance:  # the model has read nothing
        return confidence
    return min(1.0, max(0.0, first.relevance + (1 - weight) * (confidence - before_relevance)))


def calibrate(ranked: Sequence[Scored], confidence: float, signals: Signals) -> list[Scored]:
    """Scale all scores by one factor, so that the best relevance equals ``confidence``. The order is the same."""
    best_relevance = max((scored.relevance for scored in ranked), default=0.0)
    best_score = max((scored.score for scored in ranked), default=0.0)
    if best_relevance <= 0:
        return list(ranked)
    factor = min(confidence / best_relevance, 1 / best_score)
    return [
        Scored(
            scored.candidate,
            scored.score * factor,
            scored.relevance * factor,
            scored.text,
            scored.vector,
            partial(_scaled_parts, scored, factor, confidence, signals),
        )
        for scored in ranked
    ]


def _scaled_parts(scored: Scored, factor: float, confidence: float, signals: Signals) -> tuple[ScorePart, ...]:
    parts = scored.parts()
    outside = [replace(part, value=part.value * factor) for part in parts if part.name in PARTS_OUTSIDE_THRESHOLD]
    rest = [part for part in parts if part.name not in PARTS_OUTSIDE_THRESHOLD]
    fit = ScorePart(_PART, (factor - 1) * sum(part.value for part in rest), _explain(confidence, signals))
    return (*rest, fit, *outside)


def _explain(confidence: float, signals: Signals) -> str:
    words = "all its words" if signals.has_all_words else f"{signals.share:.0%} of it"
    nearest = "" if signals.meaning is None else f", the nearest in meaning is at {signals.meaning:.2f}"
    return f"{confidence:.2f} sure of an answer: one passage has {words}{nearest}"

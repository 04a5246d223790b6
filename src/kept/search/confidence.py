"""Confidence in the hits of a query, which sets their scores and grades.

The sums that rank the candidates of one query cannot be compared with those of another: a well-answered question of
twenty words gets a lower sum than three words that happen to be in a text. So the scores of a query are scaled, until
the first equals the confidence. The order does not change.

Two questions are asked of the signals of a query. *Is there an answer?* Random words are in the notes too, but seldom
in one passage; a question about another subject shares a few words with some passage, but not its meaning. This decides
between weak and likely. *Is the first hit the answer?* Where many passages are about the subject of a question, one of
them is, but often not the first. This decides between likely and strong, so a hit after the first is strong only if it
is about as good.

A similarity says little by itself: to one embedder all texts are alike, to another none. So the signal is the lead of
the nearest passage over the next ones. In a script without spaces, single pairs of characters are in every text, and
the signal is the share of the query in runs of four characters that a passage has literally. All of this is pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import nlargest

from kept.records import LIKELY_FROM, STRONG_FROM, ScorePart
from kept.search.candidates import Candidate
from kept.search.keywords import WeightedTerm
from kept.search.scores import PARTS_OUTSIDE_THRESHOLD, Scored
from kept.search.weights import (
    ALL_WORDS_CONFIDENCE,
    AS_GOOD_FROM,
    JUST_LIKELY,
    LARGE_MEMORY_PASSAGES,
    ONE_OF_TWO_CONFIDENCE,
    ONE_OF_TWO_SHARE,
    SMALL_MEMORY_PASSAGES,
    UNSPACED_ANSWERED,
    UNSPACED_RIGHT,
    WITH_MEANING,
    WORDS_ONLY,
    ConfidenceModel,
    ConfidenceModels,
)
from kept.values import frozen
from kept.words.segment import fold, is_unspaced

_ALL = 0.999
_RUN_CHARS = 4
_MAX_RUN_CHARS = 200
_RUN_CANDIDATES = 5
_NEXT_IN_MEANING = 20
"""The nearest passage is compared with the median of those after it, up to this rank."""


@frozen
class Signals:
    """Figures that tell an answer from chance."""

    share: float
    """Largest share of the query, weighted by rarity, that a passage has together with its context."""
    together: float
    """Largest number of the query's words in one passage."""
    meaning: float | None = None
    """Lead in meaning of the nearest passage over the next ones; None if no vectors were compared."""
    lead: float = 0.0
    """Lead of the first candidate over the second, in the sum that ranks them."""
    passages: int = LARGE_MEMORY_PASSAGES
    """Number of passages in the index."""
    query_words: int = 4
    """Number of words in the query, without stopwords."""
    unknown_words: int = 0
    """Number of them that no passage has."""
    runs: float | None = None
    """For a query in an unspaced script, its largest share in runs of characters that a passage has literally."""

    @property
    def has_all_words(self) -> bool:
        return self.share >= _ALL

    @property
    def features(self) -> tuple[float, ...]:
        """The inputs of the models, in the order of `ConfidenceModel`."""
        return (
            self.share,
            math.log1p(max(0.0, self.together - 2)),
            1 / max(2, self.query_words),
            math.sqrt(self.meaning or 0.0),
            math.log1p(self.unknown_words),
            self.lead,
        )

    @property
    def size(self) -> float:
        """Size of the memory on a logarithmic scale, from 0 (small) to 1 (large)."""
        scale = math.log(LARGE_MEMORY_PASSAGES / SMALL_MEMORY_PASSAGES)
        return min(1.0, max(0.0, math.log(max(1, self.passages) / SMALL_MEMORY_PASSAGES) / scale))

    @property
    def smallness(self) -> float:
        return max(0.0, math.log(LARGE_MEMORY_PASSAGES / max(1, self.passages)))


# reading the signals


def read_signals(
    ranked: Sequence[Scored],
    terms: Sequence[WeightedTerm],
    *,
    passages: int,
    query_text: str = "",
    text_of: Callable[[int], str] | None = None,
) -> Signals:
    """Return the signals of the ranked candidates of a query.

    ``passages`` is the number of passages in the index. ``text_of`` returns the text of a row; it is called for queries
    in an unspaced script only.
    """
    texts = {weighted.term.text for weighted in terms}
    # A compound, such as an identifier, whose parts are terms as well, does not count.
    counts = {text: float(len(text.split()) == 1 or not texts.issuperset(text.split())) for text in texts}
    known = sum(counts[weighted.term.text] for weighted in terms if weighted.rows)
    words = round(sum(counts.values()))
    is_in_pairs = 2 * sum(weighted.term.kind in ("pair", "prefix") for weighted in terms) >= len(terms) > 0
    best_texts = [text_of(item.candidate.row) for item in ranked[:_RUN_CANDIDATES]] if is_in_pairs and text_of else []
    return Signals(
        share=max((item.candidate.evidence.reach for item in ranked), default=0.0),
        together=max((_count_words(item.candidate, counts) for item in ranked), default=0.0),
        meaning=_meaning_lead(ranked),
        lead=_lead(ranked),
        passages=passages,
        query_words=words,
        unknown_words=max(0, words - max(1, round(known))),
        runs=max((share_in_runs(query_text, text) for text in best_texts), default=0.0) if is_in_pairs else None,
    )


def _count_words(candidate: Candidate, counts: Mapping[str, float]) -> float:
    """Return the number of the query's words that a candidate has. One that another stands for is part of a word."""
    if not candidate.expansions:
        return sum([counts[text] for text in candidate.matched])
    shares = {source: expansion.share for expansion in candidate.expansions for source in expansion.sources}
    shares.update(dict.fromkeys(candidate.matched, 1.0))
    return sum(counts[text] * share for text, share in shares.items())


def _lead(ranked: Sequence[Scored]) -> float:
    """Return the lead of the first candidate over the next one that is not a passage of the same note."""
    if not ranked:
        return 0.0
    first = ranked[0].candidate
    others = (item for item in ranked[1:] if first.is_utterance or item.candidate.position[0] != first.position[0])
    second = next(others, None)
    return max(0.0, ranked[0].relevance - (second.relevance if second else 0.0))


def _meaning_lead(ranked: Sequence[Scored]) -> float | None:
    meanings = [item.candidate.evidence.meaning for item in ranked if item.candidate.has_vector]
    if not meanings:
        return None
    nearest, *others = nlargest(_NEXT_IN_MEANING, meanings)
    if len(others) < 3:
        return nearest - (others[-1] if others else nearest)
    middle = len(others) // 2
    return nearest - (others[middle] if len(others) % 2 else (others[middle - 1] + others[middle]) / 2)


def share_in_runs(query: str, text: str) -> float:
    """Return the share of a query's unspaced characters that are in a run of four characters of a text."""
    text = "".join(fold(text).lower().split())
    total = covered = 0
    for run in _unspaced_runs(fold(query[:_MAX_RUN_CHARS]).lower()):
        inside = [run[at : at + _RUN_CHARS] in text for at in range(len(run) - _RUN_CHARS + 1)]
        total += len(run)
        covered += sum(any(inside[max(0, at - _RUN_CHARS + 1) : at + 1]) for at in range(len(run)))
    return covered / total if total else 0.0


def _unspaced_runs(query: str) -> Iterator[str]:
    for word in query.split():
        if run := "".join(filter(is_unspaced, word)):
            yield run


# confidence


def estimate_confidence(signals: Signals, *, vector_share: float, models: ConfidenceModels | None = None) -> float:
    """Return the score of the first hit: likely or better if there is an answer, strong if the hit is the answer.

    ``vector_share`` is the weight of the embedder. Without a word in common, the lead in meaning gives this share of
    its value: the built-in model is far from sure, and in scripts that it does not know nonsense has a lead too.
    """
    models = models or (WORDS_ONLY if signals.meaning is None else WITH_MEANING)
    answered = estimate_answered(signals, models, vector_share=vector_share)
    right = estimate_right(signals, models) if answered >= LIKELY_FROM else 0.0
    return max(right if right >= STRONG_FROM else 0.0, min(answered, JUST_LIKELY))


def estimate_answered(signals: Signals, models: ConfidenceModels, *, vector_share: float) -> float:
    """Return how sure it is, from 0 to 1, that there is an answer. 0.25 is the bound that was chosen on folds."""
    least = vector_share * (signals.meaning or 0.0)
    if signals.has_all_words:
        least = max(least, ALL_WORDS_CONFIDENCE)
    elif 0 < signals.query_words <= 2 and signals.share >= ONE_OF_TWO_SHARE:
        least = max(least, ONE_OF_TWO_CONFIDENCE)
    if signals.runs is not None:
        return max(_unspaced_chance(signals, UNSPACED_ANSWERED), least)
    if signals.share <= 0:
        return least
    logit = signals.size * _logit(models.large, signals) + (1 - signals.size) * _logit(models.small, signals)
    return max(_chance(logit), least)


def estimate_right(signals: Signals, models: ConfidenceModels) -> float:
    """Return the probability that the first hit is the answer."""
    if signals.runs is not None:
        return _unspaced_chance(signals, UNSPACED_RIGHT)
    return _chance(_logit(models.right, signals) + models.smallness * signals.smallness)


def _logit(model: ConfidenceModel, signals: Signals) -> float:
    base, *weights = model
    return base + sum(weight * figure for weight, figure in zip(weights, signals.features, strict=True))


def _unspaced_chance(signals: Signals, weights: tuple[float, float, float]) -> float:
    base, runs, lead = weights
    return _chance(base + runs * math.sqrt(signals.runs or 0.0) + lead * math.sqrt(signals.lead))


def _chance(logit: float) -> float:
    return 1 / (1 + math.exp(-max(-50.0, logit)))


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


# scores


def calibrate(ranked: Sequence[Scored], confidence: float, signals: Signals) -> list[Scored]:
    """Scale the scores, so that the best relevance equals ``confidence``. The order is the same.

    Hits that are not about as good as the first are scaled to likely at most.
    """
    best_relevance = max((scored.relevance for scored in ranked), default=0.0)
    best_score = max((scored.score for scored in ranked), default=0.0)
    if best_relevance <= 0:
        return list(ranked)
    factor = min(confidence / best_relevance, 1 / best_score)
    lower = factor * min(1.0, JUST_LIKELY / confidence) if confidence else factor
    as_good = AS_GOOD_FROM * best_score
    return [_scaled(scored, factor if scored.score >= as_good else lower, confidence, signals) for scored in ranked]


def _scaled(scored: Scored, factor: float, confidence: float, signals: Signals) -> Scored:
    return Scored(
        scored.candidate,
        scored.score * factor,
        scored.relevance * factor,
        scored.text,
        scored.vector,
        partial(_scaled_parts, scored, factor, confidence, signals),
        unscaled=scored.relevance,
    )


def _scaled_parts(scored: Scored, factor: float, confidence: float, signals: Signals) -> tuple[ScorePart, ...]:
    parts = scored.parts()
    outside = [replace(part, value=part.value * factor) for part in parts if part.name in PARTS_OUTSIDE_THRESHOLD]
    rest = [part for part in parts if part.name not in PARTS_OUTSIDE_THRESHOLD]
    words = "all words" if signals.has_all_words else f"{signals.share:.0%}"
    nearest = "" if signals.meaning is None else f", the closest meaning leads by {signals.meaning:.2f}"
    reason = f"confidence {confidence:.2f}: one passage has {words} of the query{nearest}"
    return (*rest, ScorePart("fit", (factor - 1) * sum(part.value for part in rest), reason), *outside)

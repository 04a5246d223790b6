"""Numbers of the ranking: the weight of each figure, the trust in an embedder, and the confidence in an answer.

`UTTERANCES` was learned by `benchmarks/ranking.py` and rounded, except `machine`, which is half of the learned weight:
nearly all questions that it was learned from ask for something that a person said. `NOTES` was picked from a grid over
all sets of notes, not learned; docs/retrieval.md gives the reasons, and the result of learning. The confidence models
are what `python -m benchmarks.calibration` learns from the signals in `benchmarks/signals`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kept.base.values import frozen

# weight of each figure


@frozen
class EvidenceWeights:
    """Weight of each figure of `Evidence`, by its name. What is not here counts nothing.

    The weights of the words sum to 1, and so do those of the meaning. The settings of the query, or the weight measured
    for its embedder, mix the two sides. The penalties are subtracted.
    """

    text: Mapping[str, float]
    meaning: Mapping[str, float]
    penalties: Mapping[str, float]


NOTES = EvidenceWeights(text={"words": 0.85, "coverage": 0.15}, meaning={"meaning": 1.0}, penalties={})
UTTERANCES = EvidenceWeights(
    text={"words": 0.25, "coverage": 0.08, "around": 0.02, "reach": 0.5, "answers": 0.15},
    meaning={"meaning": 0.8, "beside": 0.2},
    penalties={"question": 0.05, "speaker": 0.17, "machine": 0.12},
)

# trust in the embedder

UTTERANCE_TRUST = 0.75
"""Factor of an embedder's weight for utterances. They are short and colloquial, and tell it less than notes do."""
COVERED_TRUST, UNCOVERED_TRUST = 0.5, 4 / 3
"""Factor of an embedder's weight for notes if one of them has all words of the query, and the amount to add if none has
any. A question in other words than the notes use can only be answered by meaning; a title is found by its words."""

# added to a score, or subtracted

RECENCY_SHARE = 0.02
"""Most that a recent chunk can gain: enough to break a tie, not enough to overturn a better match."""
RECENCY_HALF_LIFE_DAYS = 30.0
PERIOD_SHARE = 0.15
"""Most that a chunk from a period named in the query can gain."""
PROJECT_SHARE = 0.05
"""Amount that a chunk of the project gains which the search is made in: more than recency, less than a better match."""
WHOLE_NOTE_SHARE = 0.2
"""Weight of the words of the query that a note has only outside its best passage, relative to the weight of all words.
Learned on folds of long notes, this was 0.2 or 0.3 if questions take their words from several passages of a note, and
0.05 if they do not: the smaller of the first two costs the second kind nothing on sets of short notes."""
BESIDE_BETTER_SHARE = 0.4
"""Share of the distance to a better passage that the passage next to it in the same note makes up."""
EXACT_FLOOR = 0.6
"""Least score of an exact match. It exceeds any sensible threshold, because it is literally what the query says."""

# words that stand for others

COMPOUND_SHARE, EQUIVALENT_SHARE, TYPO_SHARE, BEGINNING_SHARE, GUESS_SHARE = 0.9, 0.8, 0.8, 0.6, 0.3
"""Weight of a word that stands for one of the query, relative to it: a compound for its parts or the other way round,
an equivalent, the only correction of a typo, a word with the same beginning, and one of several corrections. The last
is too little for a hit of one word to be likely."""
FORM_SHARE = 1.0
"""Weight of an irregular form, which is the same word."""

# confidence in the hits


class AnsweredModel(NamedTuple):
    """Coefficients of a logistic model of whether there is an answer: the constant, and one for each of
    `scores.Signals.features`."""

    base: float
    share: float
    further: float
    """Of the logarithm of the number of words in one passage, after the second."""
    brevity: float
    """Of 1 divided by the number of words in the query, at least two: half of two words is more than half of ten."""
    meaning: float
    """Of the square root of the lead in meaning."""
    unknown: float
    """Of the share of words that no passage has: they say less against a passage than words that others have."""


@frozen
class AnsweredModels:
    """The models for queries with vectors, or for those without. Between the two sizes of a memory, both count."""

    small: AnsweredModel
    large: AnsweredModel


@frozen
class CrowdModel:
    """Coefficients of a logistic model of a figure and of the crowd around the first candidate."""

    base: float
    figure: float
    crowd: float
    """Of the logarithm of the number of candidates that come near the first."""


WITH_MEANING = AnsweredModels(
    small=AnsweredModel(-9.57, share=7.77, further=3.03, brevity=6.11, meaning=6.78, unknown=5.52),
    large=AnsweredModel(-7.31, share=7.84, further=2.65, brevity=4.22, meaning=3.56, unknown=1.18),
)
WORDS_ONLY = AnsweredModels(
    small=AnsweredModel(-6.16, share=9.91, further=3.05, brevity=3.48, meaning=0.0, unknown=4.51),
    large=AnsweredModel(-6.27, share=7.99, further=2.6, brevity=3.34, meaning=0.0, unknown=0.6),
)
UNSPACED_ANSWERED = CrowdModel(-7.1, figure=12.26, crowd=0.64)
"""Is there an answer, in scripts without spaces? The figure is the square root of the share in runs."""
FIRST_IS_RIGHT = CrowdModel(-1.39, figure=5.69, crowd=1.59)
"""Is the first hit the answer? The figure is its sum."""
NEAR_SHARE = 0.15
"""A candidate whose sum is this share of the first lower counts as a third of a rival, one twice as far as a tenth."""
SMALL_MEMORY_PASSAGES, LARGE_MEMORY_PASSAGES = 60, 1000
CLOSEST_MEANING = 0.1
"""Most that a passage counts for its place alone in a small memory, if none has a word of the query: enough to be
shown."""
UNRELATED_BELOW = 0.02
"""Relevance below which a passage without a word of the query is unrelated."""

UNKNOWN_FROM = 0.6
"""Share of the query's words that no passage has from which on it counts as a query in other words."""
NEAR_FROM, NEAR_AMONG_PASSAGES, NEAR_BY_DOUBLING = 0.32, 250, 0.03
"""Similarity of the nearest of 250 passages from which there is an answer to a query in other words, and what every
doubling of the passages adds. Nine in ten questions about something else are below, in memories of 5 to 21,000."""
ALL_WORDS_CONFIDENCE = 0.5
"""Least confidence if one passage has every word of the query: a word that is in the notes is found, whatever it is."""
JUST_LIKELY, JUST_WEAK = 0.59, 0.24
"""Most for a hit that is not strong, and for one that is no answer: just below the bounds in `records`."""
LIKELY_SHARE = 0.35
"""Share of the first sum from which a hit is likely, if there is an answer. One in fifty answers is below that; in
sixty notes, where many are among the first ten by chance, one in ten."""
AS_GOOD_FROM = 0.98
"""Share of the first score from which a hit is about as good. Of hits below that, fewer than half are right."""

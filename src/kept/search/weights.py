"""Numbers of the ranking: the weight of each figure, the trust in an embedder, and the confidence in an answer.

`UTTERANCES` was learned by `benchmarks/ranking.py` and rounded, except `machine`, which is half of the learned weight:
nearly all questions that it was learned from ask for something that a person said. `NOTES` was picked from a grid over
all sets of notes, not learned; docs/retrieval.md gives the reasons, and the result of learning. The confidence models
were learned by `python -m benchmarks.calibration`, and rounded.
"""

from __future__ import annotations

from typing import NamedTuple

from kept.values import frozen

# weight of each figure


@frozen
class EvidenceWeights:
    """Weight of each figure of `Evidence`.

    The weights of the words (words, around, coverage, reach, answers) sum to 1, and so do those of the meaning
    (meaning, beside). The settings of the query, or the weight measured for its embedder, mix the two sides. The
    penalties (asks, other_speaker, machine) are subtracted.
    """

    words: float
    around: float
    coverage: float
    reach: float
    answers: float
    meaning: float
    beside: float
    asks: float
    other_speaker: float
    machine: float


NOTES = EvidenceWeights(
    words=0.85,
    around=0.0,
    coverage=0.15,
    reach=0.0,
    answers=0.0,
    meaning=1.0,
    beside=0.0,
    asks=0.0,
    other_speaker=0.0,
    machine=0.0,
)
UTTERANCES = EvidenceWeights(
    words=0.25,
    around=0.02,
    coverage=0.08,
    reach=0.5,
    answers=0.15,
    meaning=0.8,
    beside=0.2,
    asks=0.05,
    other_speaker=0.17,
    machine=0.12,
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
EXACT_FLOOR = 0.6
"""Least score of an exact match. It exceeds any sensible threshold, because it is literally what the query says."""

# words that stand for others

COMPOUND_SHARE, EQUIVALENT_SHARE, TYPO_SHARE, BEGINNING_SHARE, GUESS_SHARE = 0.9, 0.8, 0.8, 0.6, 0.35
"""Weight of a word that stands for one of the query, relative to it: a compound for its parts or the other way round,
an equivalent, the only correction of a typo, a word with the same beginning, and one of several corrections. The last
is too little for a hit of one word to be likely (`ONE_OF_TWO_SHARE`)."""

# confidence in the hits, see `confidence`


class ConfidenceModel(NamedTuple):
    """Coefficients of a logistic model of `confidence.Signals`: the constant, and one for each of its features."""

    base: float
    share: float
    further: float
    """Of the logarithm of the number of words in one passage, after the second."""
    brevity: float
    """Of 1 divided by the number of words in the query, at least two: half of two words is more than half of ten."""
    meaning: float
    """Of the square root of the lead in meaning."""
    unknown: float
    """Of the logarithm of the number of words that no passage has: they say less against a passage than words that
    others have."""
    lead: float


@frozen
class ConfidenceModels:
    """The models for queries with vectors, or for those without."""

    small: ConfidenceModel
    """Is there an answer, in a small memory?"""
    large: ConfidenceModel
    """Is there an answer, in a large memory? Between the two sizes, both count."""
    right: ConfidenceModel
    """Is the first hit the answer?"""
    smallness: float
    """Coefficient of `right` for the logarithm of the size."""


WITH_MEANING = ConfidenceModels(
    small=ConfidenceModel(-11.2, share=6.6, further=2.8, brevity=9.7, meaning=6.5, unknown=2.8, lead=1.9),
    large=ConfidenceModel(-9.7, share=5.9, further=3.0, brevity=4.6, meaning=7.0, unknown=0.0, lead=4.6),
    right=ConfidenceModel(-8.2, share=5.0, further=1.4, brevity=4.2, meaning=3.1, unknown=1.25, lead=4.6),
    smallness=0.3,
)
WORDS_ONLY = ConfidenceModels(
    small=ConfidenceModel(-9.9, share=11.8, further=2.5, brevity=8.4, meaning=0.0, unknown=2.4, lead=0.0),
    large=ConfidenceModel(-6.8, share=7.0, further=3.1, brevity=0.0, meaning=0.0, unknown=0.0, lead=0.5),
    right=ConfidenceModel(-7.5, share=5.8, further=1.7, brevity=3.3, meaning=0.0, unknown=0.9, lead=3.4),
    smallness=0.4,
)
UNSPACED_ANSWERED, UNSPACED_RIGHT = (-4.2, 7.0, 9.5), (-5.4, 4.7, 14.3)
"""Constant, and coefficients of the square roots of the share in runs and of the lead, in scripts without spaces."""
SMALL_MEMORY_PASSAGES, LARGE_MEMORY_PASSAGES = 60, 1000

ALL_WORDS_CONFIDENCE = 0.5
"""Least confidence if one passage has every word of the query: a word that is in the notes is found, whatever it is."""
ONE_OF_TWO_CONFIDENCE, ONE_OF_TWO_SHARE = 0.32, 0.4
"""Least confidence for a query of at most two words if a passage has this share of it: one word that is rare enough to
be nearly half of the query. Two random words reach that too, but a user who types two words is browsing."""
JUST_LIKELY = 0.59
"""Most for a hit that is not strong, just below `records.STRONG_FROM`."""
AS_GOOD_FROM = 0.98
"""Share of the first score from which a hit is about as good. Of hits below that, fewer than half are right."""

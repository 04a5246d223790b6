"""Numbers of the ranking: the weight of each figure, the trust in an embedder, and the confidence in an answer.

`UTTERANCES` was learned by `benchmarks/ranking.py` and rounded, except `machine`, which is half of the learned weight:
nearly all questions that it was learned from ask for something that a person said. `NOTES` was picked from a grid over
all sets of notes, not learned; docs/retrieval.md gives the reasons, and the result of learning. The confidence models
were learned by `benchmarks/calibration.py`.
"""

from __future__ import annotations

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

# confidence that there is an answer


@frozen
class ConfidenceModel:
    """Coefficients of a logistic model of `scores.Signals`."""

    base: float
    share: float
    together: float
    """Of the logarithm of the count: the second word says more than the tenth."""
    meaning: float = 0.0


WITH_MEANING = ConfidenceModel(base=-15.0, share=6.3, together=6.4, meaning=7.8)
WORDS_ONLY = ConfidenceModel(base=-13.3, share=8.0, together=6.7)

ALL_WORDS_CONFIDENCE = 0.6
"""Least confidence if one passage has every word of the query: a word that is in the notes is found, whatever it is."""
ONE_OF_TWO_CONFIDENCE, ONE_OF_TWO_SHARE = 0.32, 0.4
"""Least confidence for a query of at most two words if a passage has this share of it: one word that is rare enough to
be nearly half of the query. Two random words reach that too, but a user who types two words is browsing."""

SMALL_MEMORY_PASSAGES, SMALL_MEMORY_FACTOR, MAX_SMALL_MEMORY_BONUS = 60, 6.0, 5.0
"""Bonus for a memory of fewer passages. There, fewer words meet by chance, and a word of the query that is in no
passage says little. Judged by hand on memories of five to thirty passages: nearly all sets that the models were learned
from are larger."""

"""How sure it is that a query has an answer here, so that a score means the same for every query. Pure.

The sum that ranks the candidates of one query says little about another: a question of twenty words that is answered
well has a lower one than three words that only happen to stand in a text. So the sums of a query are scaled, all by the
same factor, until the best is as high as it is likely that there is an answer at all. The order stays as it was.

Words thrown together stand in the notes too, but seldom in one passage; a question about something else shares a few
words with some passage, but not its meaning. That is what the chance is told by: which share of the query the best
passage has, how many of its words stand together in one passage, and how near the nearest is in meaning.
`benchmarks/calibration.py` learns the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from kept.records import ScorePart
from kept.search.fuse import Scored
from kept.search.keyword import WeightedTerm
from kept.values import frozen

ALL_WORDS = 0.6
"""The least where one passage has every word of the query: a word that stands in the notes is found, whatever it is."""
ONE_OF_TWO, NEARLY_HALF = 0.32, 0.4
"""The least where somebody types two words, and a passage has one of them that is rare enough to be nearly half of what
is asked for. Of two words thrown together as much can be said; but who types two words looks through what there is."""
BESIDES = ("recency", "when", "same note")
"""Parts that rank and neither save a hit from the threshold nor cost it."""

FEW_PASSAGES, FEW, MOST_FOR_FEW = 60, 6.0, 5.0
"""In a small memory less stands together by chance, and a word of the question that stands nowhere says little. Judged
by hand on memories of five to thirty passages: nearly all that was learned from is larger."""

_PART = "fit"
_WHOLE = 0.999


@frozen
class Signals:
    """What tells an answer from chance."""

    share: float
    """Which share of the query, by rarity, the best passage has, with what stands around it."""
    together: float
    """How many of the query's words stand in one passage."""
    meaning: float | None
    """How near the nearest is in meaning; None where no meaning was compared."""
    passages: int = FEW_PASSAGES
    """How many there are to be found."""
    asked: int = 0
    """How many words the query has that say what is looked for."""
    unspaced: float = 0.0
    """For a query in a script without spaces, the best sum itself: of pairs of signs nothing better was learned."""

    @property
    def has_all(self) -> bool:
        return self.share >= _WHOLE

    @property
    def least(self) -> float:
        """What it is surely worth, whatever was learned."""
        if self.has_all:
            return ALL_WORDS
        return ONE_OF_TWO if 0 < self.asked <= 2 and self.share >= NEARLY_HALF else 0.0


@frozen
class Chance:
    """A logistic model of the signs."""

    base: float
    share: float
    together: float
    """Of the logarithm: the second word says more than the tenth."""
    meaning: float = 0.0

    def of(self, signs: Signals) -> float:
        logit = self.base + self.share * signs.share + self.together * math.log1p(signs.together)
        return 1 / (1 + math.exp(-(logit + self.meaning * (signs.meaning or 0.0) + _for_few(signs.passages))))


def _for_few(passages: int) -> float:
    return min(MOST_FOR_FEW, FEW * math.log(max(1.0, FEW_PASSAGES / max(1, passages))))


WITH_MEANING = Chance(base=-15.0, share=6.3, together=6.4, meaning=7.8)
WORDS_ALONE = Chance(base=-13.3, share=8.0, together=6.7)


def read_signs(ranked: Sequence[Scored], terms: Sequence[WeightedTerm], *, passages: int) -> Signals:
    counts = _counts(terms)
    return Signals(
        share=max((one.candidate.evidence.reach for one in ranked), default=0.0),
        together=max((sum(map(counts.__getitem__, {*one.candidate.matched})) for one in ranked), default=0.0),
        meaning=max((one.candidate.evidence.meaning for one in ranked if one.candidate.has_vector), default=None),
        passages=passages,
        asked=round(sum(counts.values())),
        unspaced=max((one.relevance for one in ranked), default=0.0) if _is_unspaced(terms) else 0.0,
    )


def _counts(terms: Sequence[WeightedTerm]) -> dict[str, float]:
    """What each term counts. What is asked for in its parts as well, such as an identifier, counts as its parts."""
    asked = {weighed.term.text for weighed in terms}
    counts = {}
    for weighed in terms:
        parts = weighed.term.text.split()
        is_compound = len(parts) > 1 and asked.issuperset(parts)
        counts[weighed.term.text] = 0.0 if is_compound else 1.0
    return counts


def _is_unspaced(terms: Sequence[WeightedTerm]) -> bool:
    return 2 * sum(weighed.term.kind in ("pair", "prefix") for weighed in terms) >= len(terms) > 0


def how_sure(signs: Signals, *, vector_share: float, chance: Chance | None = None) -> float:
    """From 0 to 1. ``vector_share`` is how much the embedder is trusted: so much its word alone is worth."""
    chance = chance or (WORDS_ALONE if signs.meaning is None else WITH_MEANING)
    alone = vector_share * (signs.meaning or 0.0)
    return max(chance.of(signs), alone, signs.unspaced, signs.least)


def after_reading(sure: float, before: Sequence[Scored], after: Sequence[Scored], weight: float) -> float:
    """How sure it is once a model has read the best: its judgement of the first has its weight here too."""
    if not after:
        return sure
    first = after[0]
    was = next(one.relevance for one in before if one.candidate.row == first.candidate.row)
    if first.relevance == was:  # nothing was read
        return sure
    return min(1.0, max(0.0, first.relevance + (1 - weight) * (sure - was)))


def calibrate(ranked: Sequence[Scored], sure: float, signs: Signals) -> list[Scored]:
    """The same in the same order, with scores that can be compared between queries: the best has ``sure``."""
    best, highest = max((one.relevance for one in ranked), default=0.0), max((one.score for one in ranked), default=0.0)
    if best <= 0:
        return list(ranked)
    factor = min(sure / best, 1 / highest)
    return [
        Scored(
            one.candidate,
            one.score * factor,
            one.relevance * factor,
            one.text,
            one.vector,
            partial(_scaled, one, factor, sure, signs),
        )
        for one in ranked
    ]


def _scaled(one: Scored, factor: float, sure: float, signs: Signals) -> tuple[ScorePart, ...]:
    parts = one.parts()
    beside = [replace(part, value=part.value * factor) for part in parts if part.name in BESIDES]
    rest = [part for part in parts if part.name not in BESIDES]
    fit = ScorePart(_PART, (factor - 1) * sum(part.value for part in rest), _reason(sure, signs))
    return (*rest, fit, *beside)


def _reason(sure: float, signs: Signals) -> str:
    words = "all its words" if signs.has_all else f"{signs.share:.0%} of it"
    nearest = "" if signs.meaning is None else f", the nearest in meaning is at {signs.meaning:.2f}"
    return f"{sure:.2f} sure of an answer: one passage has {words}{nearest}"

"""A query to the word index, as a small tree of phrases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kept.values import frozen

TEXT_WEIGHT, CONTEXT_WEIGHT = 1.0, 0.5
"""Weights of a word in the text and in the context of a chunk when the best chunks are picked."""
ROWS_BUDGET = 6_000
"""With more rows to rank than this, only rows with one of the rarer phrases are looked at."""

PhraseCount = tuple[int, int, int]
"""Number of a phrase in a query, and how often the text and the context of a chunk have it."""


class Phrase(NamedTuple):
    """Words that stand one after the other. A tuple, because phrases are compared and looked up often."""

    text: str
    is_prefix: bool = False
    """True if the last word may go on."""


class AllOf(NamedTuple):
    """A condition that a chunk fulfils if it has every phrase, in its context if ``in_context`` is set."""

    phrases: tuple[Phrase, ...]
    in_context: bool = False


@frozen
class CountedPhrase:
    """A phrase of a query with the number of chunks that have it."""

    phrase: Phrase
    rows: int


@frozen
class KeywordMatch:
    """A chunk with at least one of the phrases of a query."""

    row: int
    counts: tuple[PhraseCount, ...]
    """The phrases that it has, in order."""
    length: int


def rarest(phrases: Iterable[CountedPhrase], budget: int) -> list[CountedPhrase]:
    """Return the rarest phrases whose rows fit the budget, rarest first, and at least one."""
    chosen: list[CountedPhrase] = []
    rows = 0
    for phrase in sorted(phrases, key=lambda phrase: phrase.rows):
        if chosen and rows + phrase.rows > budget:
            break
        chosen.append(phrase)
        rows += phrase.rows
    return chosen

"""A query to the word index as phrases, and the search for them by expressions in the syntax of FTS5.

`word_lists` finds the same in memory, for a process that keeps searching.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kept.base.records import Filter
from kept.base.values import frozen

if TYPE_CHECKING:
    from kept.index.sqlite.word_index import WordIndex

TEXT_WEIGHT, CONTEXT_WEIGHT = 1.0, 0.5
"""Weights of a word in the text and in the context of a chunk when the best chunks are picked."""
ONE_PASS = 25_000
"""Rows with a phrase of the query, up to which reading them all is faster than looking up each candidate."""
ROWS_BUDGET = 6_000
"""With more rows to rank than this, only rows with one of the rarer phrases are looked at."""

PhraseCount = tuple[int, int, int]
"""Number of a phrase in a query, and how often the text and the context of a chunk have it."""


class Phrase(NamedTuple):
    """Words that stand one after the other. A tuple, because phrases are compared and looked up often."""

    text: str
    is_prefix: bool = False
    """True if the last word may go on."""


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


class PhraseSearch:
    """The phrases of one query. A chunk must have any of them."""

    def __init__(self, words: WordIndex, phrases: Sequence[CountedPhrase], *, rows_budget: int = ROWS_BUDGET) -> None:
        self._words = words
        self._expression = expression = either(phrases)
        self._rows = sum(phrase.rows for phrase in phrases)
        rare = rarest(phrases, rows_budget)
        self._rare_count = len(rare) if len(rare) < len(phrases) else 0
        """Number of phrases before those that are counted in `_rare_expression`."""
        self._rare_expression = f"({either(rare)}) AND ({expression})"

    def find_best(self, limit: int, filters: Filter) -> list[int]:
        """Return the best chunks by BM25 of text and context."""
        expression = self._rare_expression if self._rare_count else self._expression
        weights = (TEXT_WEIGHT, CONTEXT_WEIGHT)
        return self._words.best_rows(expression, weights=weights, limit=limit, filters=filters)

    def count(self, best: Sequence[int], others: Sequence[int]) -> tuple[list[KeywordMatch], float]:
        """Return how often rows have each phrase, without rows that have none, and the mean length of a chunk.

        ``best`` are rows that `find_best` returned.
        """
        if self._rows <= ONE_PASS:
            return self._count(self._expression, [*best, *others])
        if not self._rare_count:
            return self._count(self._expression, [*best, *others], in_one_pass=False)
        matches, mean_length = self._count(self._rare_expression, best, first=self._rare_count)
        further, other_mean = self._count(self._expression, others, in_one_pass=False)
        return matches + further, max(mean_length, other_mean)

    def _count(
        self, expression: str, rows: Sequence[int], *, in_one_pass: bool = True, first: int = 0
    ) -> tuple[list[KeywordMatch], float]:
        if not rows:
            return [], 1.0
        return self._words.count_phrases(expression, rows, in_one_pass=in_one_pass, first=first)


def quote(phrase: Phrase) -> str:
    """Return a phrase, quoted so that no part of it is read as syntax."""
    quoted = '"' + phrase.text.replace('"', '""') + '"'
    return quoted + " *" if phrase.is_prefix else quoted


def either(phrases: Iterable[CountedPhrase]) -> str:
    """Return the expression that matches chunks with any of the phrases."""
    return " OR ".join(quote(phrase.phrase) for phrase in phrases)


def every(phrases: Iterable[Phrase], *, in_context: bool = False) -> str:
    """Return the expression that matches chunks with every phrase, in their context if ``in_context`` is set."""
    expression = " AND ".join(map(quote, phrases))
    return f"context : ({expression})" if in_context else expression

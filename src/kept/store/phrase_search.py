"""Finding the chunks with the phrases of a query, and counting the phrases in them, by queries in the syntax of FTS5.

`listed_search` does the same in memory, for a process that keeps searching.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kept.records import Filter
from kept.store.phrases import CONTEXT_WEIGHT, ROWS_BUDGET, TEXT_WEIGHT, CountedPhrase, KeywordMatch, rarest

if TYPE_CHECKING:
    from kept.store.word_index import WordIndex
from collections.abc import Iterable

from kept.store.phrases import AllOf, Phrase

_ONE_PASS = 25_000
"""Rows with a phrase of the query, up to which reading them all is faster than looking up each candidate."""


class PhraseSearch:
    """The phrases of one query, in groups of those that stand for each other. ``match_all`` tells if a chunk must have
    a phrase of every group, or of any."""

    def __init__(
        self,
        words: WordIndex,
        groups: Sequence[Sequence[CountedPhrase]],
        *,
        match_all: bool = False,
        rows_budget: int = ROWS_BUDGET,
    ) -> None:
        self._words = words
        phrases = [phrase for group in groups for phrase in group]
        self._expression = expression = combine(groups, match_all=match_all)
        self._rows = sum(phrase.rows for phrase in phrases)
        rare = [] if match_all else rarest(phrases, rows_budget)
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
        if self._rows <= _ONE_PASS:
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


def combine(groups: Sequence[Sequence[CountedPhrase]], *, match_all: bool) -> str:
    """Return the expression that matches chunks with a phrase of every group, or of any group."""
    parts = (f"({either(group)})" if len(group) > 1 else either(group) for group in groups if group)
    return (" AND " if match_all else " OR ").join(parts)


def every(query: AllOf) -> str:
    expression = " AND ".join(map(quote, query.phrases))
    return f"context : ({expression})" if query.in_context else expression

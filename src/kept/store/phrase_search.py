"""Finding the chunks with the phrases of a query, and counting the phrases in them, by full-text queries.

`word_lists` does the same in memory, for a process that keeps searching.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kept.records import Filter
from kept.store.word_index import KeywordMatch, WordIndex
from kept.values import frozen

TEXT_WEIGHT, CONTEXT_WEIGHT = 1.0, 0.5
"""Weights of a word in the text and in the context of a chunk when the best chunks are picked."""
ROWS_BUDGET = 6_000
"""With more rows to rank than this, only rows with one of the rarer phrases are looked at."""
_ONE_PASS = 25_000
"""Rows with a phrase of the query, up to which reading them all is faster than looking up each candidate."""


@frozen
class QueryPhrase:
    """A phrase of a query: one or more words, one after the other."""

    expression: str
    rows: int
    """Number of chunks that have it."""
    is_prefix: bool = False


class PhraseSearch:
    """The phrases of one query. ``expression`` combines all of them; ``match_all`` tells if a chunk must have all."""

    def __init__(
        self,
        words: WordIndex,
        phrases: Sequence[QueryPhrase],
        expression: str,
        *,
        match_all: bool = False,
        rows_budget: int = ROWS_BUDGET,
    ) -> None:
        self._words = words
        self._expression = expression
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


def rarest(phrases: Iterable[QueryPhrase], budget: int) -> list[QueryPhrase]:
    """Return the rarest phrases whose rows fit the budget, rarest first, and at least one."""
    chosen: list[QueryPhrase] = []
    rows = 0
    for phrase in sorted(phrases, key=lambda phrase: phrase.rows):
        if chosen and rows + phrase.rows > budget:
            break
        chosen.append(phrase)
        rows += phrase.rows
    return chosen


def either(phrases: Iterable[QueryPhrase]) -> str:
    return " OR ".join(phrase.expression for phrase in phrases)

"""Finding the chunks with the phrases of a query, and counting the phrases in them, with lists in memory.

Import this only where numpy may be imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kept.records import Filter
from kept.store.phrases import ROWS_BUDGET, AllOf, CountedPhrase, KeywordMatch, PhraseCount, rarest
from kept.store.posting_lists import Array, Postings, WordTotals, join_lists, make_postings, score_bm25

if TYPE_CHECKING:
    from kept.store.word_lists import WordLists

LISTED_BUDGET = 50_000
"""Entries of the lists that are read for a query, rarest phrases first."""
_FIRST_FILTERED = 500


class ListedPhraseSearch:
    """The phrases of one query. Like `PhraseSearch`.

    Like there, only rows with one of the rarer phrases are ranked if there are many. The lists of most phrases are
    read. Of the most common ones it is only asked which of these rows have them. ``match_all`` tells if a chunk must
    have a phrase of every group; then all lists are read.
    """

    def __init__(
        self,
        source: WordLists,
        groups: Sequence[Sequence[CountedPhrase]],
        *,
        match_all: bool = False,
        rows_budget: int = ROWS_BUDGET,
        listed_budget: int = LISTED_BUDGET,
    ) -> None:
        self._source = source
        self._groups = groups if match_all else ()
        self._phrases = [phrase for group in groups for phrase in group]
        self._rows_budget = rows_budget
        listed = self._phrases if match_all else rarest(self._phrases, listed_budget)
        self._postings = source.read(phrase.phrase for phrase in listed)
        self._common = [number for number, phrase in enumerate(self._phrases) if phrase.phrase not in self._postings]
        source.lengths.refresh()

    def find_best(self, limit: int, filters: Filter) -> list[int]:
        """Return the best chunks by BM25 of text and context."""
        rare = self._phrases if self._groups else rarest(self._phrases, self._rows_budget)
        phrases = self._phrases if len(rare) == len(self._phrases) else [*rare, *self._phrases]
        postings = [
            self._postings.get(phrase.phrase) or self._source.postings_within(phrase.phrase, rare) for phrase in phrases
        ]
        chunks = [
            len(self._postings[phrase.phrase].rows) if phrase.phrase in self._postings else phrase.rows
            for phrase in phrases
        ]
        rows, scores = score_bm25(
            join_lists(postings), chunks, self._source.lengths.all, self._totals(), ranked=len(rare)
        )
        for group in self._groups:
            lists = [self._postings[phrase.phrase].rows for phrase in group]
            has_one = np.isin(rows, np.concatenate(lists))
            rows, scores = rows[has_one], scores[has_one]
        return best_rows(self._source, (rows, scores), limit=limit, filters=filters)

    def count(self, best: Sequence[int], others: Sequence[int]) -> tuple[list[KeywordMatch], float]:
        """Return how often rows have each phrase, without rows that have none, and the mean length of a chunk."""
        wanted = [*best, *others]
        counts = self._count_listed(wanted)
        if self._common:
            for match in self._source.count_common([self._phrases[number] for number in self._common], wanted):
                more = [(self._common[number], text, context) for number, text, context in match.counts]
                counts[match.row] = sorted([*counts.get(match.row, ()), *more])
        if self._groups:
            counts = {row: counted for row, counted in counts.items() if self._has_all(counted)}
        lengths = self._source.lengths.text[[*counts]].tolist()
        items = zip(counts.items(), lengths, strict=True)
        totals = self._totals()
        matches = [KeywordMatch(row, tuple(row_counts), length) for (row, row_counts), length in items]
        return matches, totals.text_words / max(1, totals.chunks)

    def _has_all(self, counts: Sequence[PhraseCount]) -> bool:
        """Return whether a chunk has a phrase of every group."""
        present = {number for number, *_ in counts}
        first = 0
        for group in self._groups:
            if present.isdisjoint(range(first, first + len(group))):
                return False
            first += len(group)
        return True

    def _count_listed(self, wanted: Sequence[int]) -> dict[int, list[PhraseCount]]:
        """Return the counts of the phrases whose lists were read, by row."""
        numbers = [number for number, phrase in enumerate(self._phrases) if phrase.phrase in self._postings]
        joined = join_lists([self._postings[self._phrases[number].phrase] for number in numbers])
        is_wanted = np.zeros(len(self._source.lengths.all), dtype=bool)
        is_wanted[wanted] = True
        at = np.flatnonzero(is_wanted[joined.rows])
        columns = (joined.rows, np.array(numbers)[joined.numbers], joined.text, joined.context)
        counts: dict[int, list[PhraseCount]] = {}
        for row, *count in zip(*(column[at].tolist() for column in columns), strict=True):
            counts.setdefault(row, []).append((count[0], count[1], count[2]))
        return counts

    def _totals(self) -> WordTotals:
        return self._source.totals(self._phrases)


def best_with_all(
    source: WordLists, query: AllOf, *, weights: tuple[float, float], limit: int, filters: Filter
) -> list[int]:
    """Return the best chunks by BM25 that have every phrase."""
    read = source.read(query.phrases)
    lists = [_in_context(read[phrase]) if query.in_context else read[phrase] for phrase in query.phrases]
    if any(not len(postings.rows) for postings in lists):
        return []
    source.lengths.refresh()
    totals = source.totals([CountedPhrase(phrase, len(read[phrase].rows)) for phrase in query.phrases])
    chunks = [len(postings.rows) for postings in lists]
    rows, scores = score_bm25(join_lists(lists), chunks, source.lengths.all, totals, ranked=len(lists), weights=weights)
    for postings in lists:
        has_one = np.isin(rows, postings.rows)
        rows, scores = rows[has_one], scores[has_one]
    return best_rows(source, (rows, scores), limit=limit, filters=filters)


def _in_context(postings: Postings) -> Postings:
    """Return what a list has in contexts only."""
    at = np.flatnonzero(postings.context)
    return make_postings(postings.rows[at], np.zeros(len(at)), postings.context[at])


def best_rows(source: WordLists, scored: tuple[Array, Array], *, limit: int, filters: Filter) -> list[int]:
    """Return the best of rows with scores. Equal ones at the end: the newest, then by path and line."""
    rows, scores = scored
    if filters:
        rows, scores = _filter(source, rows, scores, limit, filters)
    if len(rows) <= limit:
        return list(rows.tolist())
    least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    best = rows[scores > least].tolist()
    tied = rows[scores == least].tolist()
    if len(best) + len(tied) > limit:
        tied = source.newest_first(tied, limit - len(best))
    return [*best, *tied]


def _filter(source: WordLists, rows: Array, scores: Array, limit: int, filters: Filter) -> tuple[Array, Array]:
    """Return at least the best ``limit`` rows that pass the filters, if there are as many, and those that tie."""
    order = np.argsort(-scores, kind="stable")
    rows, scores = rows[order], scores[order]
    passing = np.zeros(len(rows), dtype=bool)
    first, size = 0, _FIRST_FILTERED
    while first < len(rows):
        part = rows[first : first + size]
        passing[first : first + size] = np.isin(part, source.passing(part.tolist(), filters))
        first += size
        size *= 4
        enough = np.flatnonzero(passing[:first])
        if len(enough) >= limit and (first >= len(rows) or scores[enough[limit - 1]] > scores[first]):
            break
    return rows[passing], scores[passing]

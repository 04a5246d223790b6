"""Lists of the chunks that have a word, read from FTS5: BM25 for a process that keeps searching.

SQLite's own ranking looks up the length of every chunk that has a word, and reads each list twice, because it stores no
frequencies. Here a list is read once, and the lengths of all chunks are kept. Import this only where numpy may be
imported.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import apsw
import numpy as np

from kept.base.records import Filter
from kept.base.sqlite import IN_ROWS, pack_rows
from kept.base.values import frozen
from kept.index.sqlite.filter_sql import filter_sql
from kept.index.sqlite.vectors import CHUNK_ORDER
from kept.index.sqlite.word_index import (
    CONTEXT_WEIGHT,
    ONE_PASS,
    ROWS_BUDGET,
    TEXT_WEIGHT,
    CountedPhrase,
    KeywordMatch,
    Phrase,
    PhraseCount,
    WordIndex,
    either,
    quote,
    rarest,
    unpack_counts,
)

# Constants of BM25 in FTS5.
K1, B = 1.2, 0.75
_LEAST_IDF = 1e-6
# Entries of all lists that are kept until the index changes, of 8 bytes each.
MAX_HELD = 3_000_000
_MOST_COUNTED, _MOST_IN_INT32 = 0xFFFF, 0x7FFF_FFFF

# Entries of the lists that are read for a query, rarest phrases first.
LISTED_BUDGET = 50_000
_FIRST_FILTERED = 500

# An array of numpy.
Array = Any


@frozen
class Postings:
    """The chunks that have a phrase, by row, and how often their text and their context have it."""

    rows: Array
    text: Array
    context: Array


@frozen
class WordTotals:
    """Sums over all chunks."""

    chunks: int
    text_words: int
    all_words: int
    """Words in texts and contexts."""


def count_postings(keys: Array) -> Postings:
    """Return the postings of a phrase that occurs at ``keys``, in order: twice the row, and 1 more in the context."""
    if not len(keys):
        return make_postings(keys, keys, keys)
    rows = keys >> 1
    ends = np.flatnonzero(rows[1:] != rows[:-1]) + 1
    first = np.concatenate(([0], ends))
    context = np.add.reduceat(keys & 1, first)
    total = np.concatenate((ends, [len(keys)])) - first
    return make_postings(rows[first], total - context, context)


def make_postings(rows: Array, text: Array, context: Array) -> Postings:
    """Return postings that take little memory. Above 65,535, it makes no difference how often a chunk has a word."""
    text, context = (np.minimum(counts, _MOST_COUNTED).astype(np.uint16) for counts in (text, context))
    return Postings(rows.astype(np.int32) if not len(rows) or rows[-1] <= _MOST_IN_INT32 else rows, text, context)


def join_lists(lists: Sequence[Postings]) -> tuple[Array, Array, Array, Array]:
    """Return rows, counts in text and counts in context of lists end to end, and the number of the list of each."""
    numbers = np.repeat(np.arange(len(lists)), [len(postings.rows) for postings in lists])
    columns = zip(*((postings.rows, postings.text, postings.context) for postings in lists), strict=True)
    rows, text, context = map(np.concatenate, columns)
    return rows, text, context, numbers


class ChunkLengths:
    """Number of words in the text of each chunk, and in text and context together, by row.

    A row never gets other words, nor is its number used again, so only new rows are read.
    """

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._schema: object = None
        self.text: Array = None
        self.all: Array = None

    def refresh(self) -> None:
        """Read the lengths of new chunks."""
        schema = self._db.execute("PRAGMA schema_version").get  # another after a rebuild, which renames the tables
        if schema != self._schema:
            self.text = self.all = np.zeros(0, dtype=np.int32)
            self._schema = schema
        query = "SELECT id, sz FROM chunks_fts_docsize WHERE id >= ?"
        new: list[Any] = self._db.execute(query, (len(self.text),)).fetchall()
        if not new:
            return
        rows = np.array([row for row, _ in new])
        sizes = decode_sizes([size for _, size in new])
        text, all_ = (np.zeros(rows[-1] + 1, dtype=np.int32) for _ in range(2))
        text[: len(self.text)], all_[: len(self.all)] = self.text, self.all
        text[rows], all_[rows] = sizes[:, 0], sizes.sum(axis=1)
        self.text, self.all = text, all_


class WordLists:
    """What is kept between searches until the index changes."""

    def __init__(self, words: WordIndex) -> None:
        self.words = words
        self.db = words.db
        self.lengths = ChunkLengths(self.db)
        self.db.register_fts5_function("word_totals", _word_totals)

    def read(self, phrases: Iterable[Phrase]) -> dict[Phrase, Postings]:
        """Return all chunks that have each phrase, and how often."""
        known = self.words.remember("postings", dict[Phrase, Postings])
        lists = {phrase: known.get(phrase) or self._read_postings(phrase) for phrase in phrases}
        known.update(lists)
        if sum(len(postings.rows) for postings in known.values()) > MAX_HELD:
            known.clear()
        return lists

    def _read_postings(self, phrase: Phrase) -> Postings:
        stems = self.words.stems(phrase.text)
        if len(stems) > 1:
            query = "SELECT rowid, phrase_counts(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ?"
            matches, _ = unpack_counts(self.db.execute(query, (quote(phrase),)))
            counted = [(match.row, *match.counts[0][1:]) for match in matches]
            return make_postings(*np.array(counted, dtype=np.int64).reshape(-1, 3).T)
        where = "term >= ?1 AND term < ?1 || char(0x10ffff)" if phrase.is_prefix else "term = ?1"
        query = f"SELECT group_concat(doc * 2 + (col = 'context')) FROM temp.occurrences WHERE {where}"
        keys = _parse_numbers(self.db.execute(query, stems).get)
        if phrase.is_prefix:
            keys.sort()
        return count_postings(keys)


def decode_sizes(sizes: Sequence[bytes]) -> Array:
    """Return the numbers of words in text and context, which FTS5 stores as integers of variable length."""
    data = np.frombuffer(b"".join(sizes), dtype=np.uint8).astype(np.int64)
    is_last = data < 128
    number: Array = np.cumsum(is_last) - is_last
    shift = 7 * (np.flatnonzero(is_last)[number] - np.arange(len(data)))
    values = np.bincount(number, weights=(data & 127) << shift)
    return values.astype(np.int64).reshape(-1, 2)


def _parse_numbers(text: str | None) -> Array:
    return np.fromstring(text or "", dtype=np.int64, sep=",")


def _word_totals(api: apsw.FTS5ExtensionApi, /, *_: Any) -> bytes:
    return array("Q", [api.row_count, api.column_total_size(0), api.column_total_size(-1)]).tobytes()


class ListedPhraseSearch:
    """The phrases of one query. Like `PhraseSearch`.

    Like there, only rows with one of the rarer phrases are ranked if there are many. The lists of most phrases are
    read. Of the most common ones it is only asked which of these rows have them.
    """

    def __init__(
        self,
        source: WordLists,
        phrases: Sequence[CountedPhrase],
        *,
        rows_budget: int = ROWS_BUDGET,
        listed_budget: int = LISTED_BUDGET,
    ) -> None:
        self._words, self._db, self._lengths = source.words, source.db, source.lengths
        self._phrases = phrases
        self._rows_budget = rows_budget
        listed = rarest(self._phrases, listed_budget)
        self._postings = source.read(phrase.phrase for phrase in listed)
        self._common = [number for number, phrase in enumerate(self._phrases) if phrase.phrase not in self._postings]
        source.lengths.refresh()

    @cached_property
    def _totals(self) -> WordTotals:
        query = "SELECT word_totals(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT 1"
        return self._words.remember(
            "totals", lambda: WordTotals(*array("Q", self._db.execute(query, (either(self._phrases),)).get))
        )

    def find_best(self, limit: int, filters: Filter) -> list[int]:
        """Return the best chunks by BM25 of text and context."""
        rare = rarest(self._phrases, self._rows_budget)
        phrases = self._phrases if len(rare) == len(self._phrases) else [*rare, *self._phrases]
        postings = [self._postings.get(phrase.phrase) or self._postings_within(phrase, rare) for phrase in phrases]
        chunks = [
            len(self._postings[phrase.phrase].rows) if phrase.phrase in self._postings else phrase.rows
            for phrase in phrases
        ]
        rows, scores = self._score(postings, chunks, ranked=len(rare))
        if filters:
            rows, scores = self._filter(rows, scores, limit, filters)
        if len(rows) <= limit:
            return list(rows.tolist())
        least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        best, tied = rows[scores > least].tolist(), rows[scores == least].tolist()
        if len(best) + len(tied) > limit:  # the newest, then by path and line
            query = f"SELECT c.row FROM chunks c WHERE c.{IN_ROWS} ORDER BY c.timestamp DESC, {CHUNK_ORDER} LIMIT ?"
            tied = [row for (row,) in self._db.execute(query, (pack_rows(tied), limit - len(best)))]
        return [*best, *tied]

    def _postings_within(self, phrase: CountedPhrase, within: Sequence[CountedPhrase]) -> Postings:
        """Return the chunks that have a phrase and any of the phrases ``within``, as if each had the phrase once."""
        query = "SELECT group_concat(rowid) FROM chunks_fts WHERE chunks_fts MATCH ?"
        expression = f"({either(within)}) AND {quote(phrase.phrase)}"
        rows = _parse_numbers(self._db.execute(query, (expression,)).get)
        return make_postings(rows, np.ones(len(rows)), np.zeros(len(rows)))

    def _score(self, lists: Sequence[Postings], chunks: Sequence[int], *, ranked: int) -> tuple[Array, Array]:
        """Return the rows of the first ``ranked`` lists, and their scores by all lists.

        ``chunks`` has how many chunks have each phrase. `bincount` adds in the order of the lists, like FTS5.
        """
        totals, lengths = self._totals, self._lengths.all
        idf = [max(_LEAST_IDF, math.log((totals.chunks - count + 0.5) / (count + 0.5))) for count in chunks]
        rows, text, context, numbers = join_lists(lists)
        rarity = np.array(idf)[numbers]
        frequency = text * TEXT_WEIGHT + context * CONTEXT_WEIGHT
        if ranked < len(chunks):
            is_ranked = np.zeros(len(lengths), dtype=bool)
            is_ranked[rows[numbers < ranked]] = True
            at = np.flatnonzero(is_ranked[rows])
            rows, rarity, frequency = rows[at], rarity[at], frequency[at]
        damping = K1 * (1 - B + B * lengths[rows] / (totals.all_words / totals.chunks))
        scores = np.bincount(rows, rarity * ((frequency * (K1 + 1.0)) / (frequency + damping)))
        all_rows = np.flatnonzero(scores)
        return all_rows, scores[all_rows]

    def _filter(self, rows: Array, scores: Array, limit: int, filters: Filter) -> tuple[Array, Array]:
        """Return at least the best ``limit`` rows that pass the filters, if there are as many, and those that tie."""
        where, values = filter_sql(filters)
        query = f"SELECT c.row FROM chunks c WHERE c.{IN_ROWS} AND {where}"
        order = np.argsort(-scores, kind="stable")
        rows, scores = rows[order], scores[order]
        # Most often, enough of the best pass.
        for count in (_FIRST_FILTERED, 4 * _FIRST_FILTERED, len(rows)):
            part = rows[:count]
            passing = np.isin(part, [row for (row,) in self._db.execute(query, (pack_rows(part.tolist()), *values))])
            enough = np.flatnonzero(passing)
            if count >= len(rows) or (len(enough) >= limit and scores[enough[limit - 1]] > scores[count]):
                break
        return part[passing], scores[:count][passing]

    def count(self, best: Sequence[int], others: Sequence[int]) -> tuple[list[KeywordMatch], float]:
        """Return how often rows have each phrase, without rows that have none, and the mean length of a chunk."""
        wanted = [*best, *others]
        counts = self._count_listed(wanted)
        if self._common:
            common = [self._phrases[number] for number in self._common]
            in_one_pass = sum(phrase.rows for phrase in common) <= ONE_PASS
            for match in self._words.count_phrases(either(common), wanted, in_one_pass=in_one_pass)[0]:
                more = [(self._common[number], text, context) for number, text, context in match.counts]
                counts[match.row] = sorted([*counts.get(match.row, ()), *more])
        lengths = self._lengths.text[[*counts]].tolist()
        items = zip(counts.items(), lengths, strict=True)
        matches = [KeywordMatch(row, tuple(row_counts), length) for (row, row_counts), length in items]
        return matches, self._totals.text_words / max(1, self._totals.chunks)

    def _count_listed(self, wanted: Sequence[int]) -> dict[int, list[PhraseCount]]:
        """Return the counts of the phrases whose lists were read, by row."""
        listed = [number for number, phrase in enumerate(self._phrases) if phrase.phrase in self._postings]
        rows, text, context, numbers = join_lists([self._postings[self._phrases[number].phrase] for number in listed])
        is_wanted = np.zeros(len(self._lengths.all), dtype=bool)
        is_wanted[wanted] = True
        at = np.flatnonzero(is_wanted[rows])
        columns = (rows, np.array(listed)[numbers], text, context)
        counts: dict[int, list[PhraseCount]] = {}
        for row, *count in zip(*(column[at].tolist() for column in columns), strict=True):
            counts.setdefault(row, []).append((count[0], count[1], count[2]))
        return counts

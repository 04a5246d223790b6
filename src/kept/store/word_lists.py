"""Lists of the chunks that have a word, read from FTS5: BM25 for a process that keeps searching.

SQLite's own ranking looks up the length of every chunk that has a word, and reads each list twice, because it stores no
frequencies. Here a list is read once, and the lengths of all chunks are kept. Import this only where numpy may be
imported.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import apsw
import numpy as np

from kept.records import Filter
from kept.sqlite import IN_ROWS, pack_rows
from kept.store.filter_sql import filter_sql
from kept.store.phrase_search import either, quote
from kept.store.phrases import CountedPhrase, KeywordMatch, Phrase
from kept.store.posting_lists import (
    Array,
    PostingCache,
    Postings,
    WordTotals,
    count_postings,
    list_postings,
    make_postings,
)
from kept.store.vector_scan import CHUNK_ORDER
from kept.store.word_index import WordIndex, unpack_counts

_ONE_PASS = 25_000


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
    def __init__(self, words: WordIndex) -> None:
        self._words = words
        self._db = words.db
        self._cache = PostingCache()
        self.lengths = ChunkLengths(self._db)
        self._db.register_fts5_function("word_totals", _word_totals)

    def read(self, phrases: Iterable[Phrase]) -> dict[Phrase, Postings]:
        """Return all chunks that have each phrase, and how often."""
        state = self._words.read_state()
        lists = {}
        for phrase in phrases:
            postings = self._cache.find(phrase, state)
            if postings is None:
                postings = self._read_postings(phrase)
                self._cache.put(phrase, postings)
            lists[phrase] = postings
        return lists

    def _read_postings(self, phrase: Phrase) -> Postings:
        stems = self._words.stems(phrase.text)
        if len(stems) > 1:
            query = "SELECT rowid, phrase_counts(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ?"
            matches, _ = unpack_counts(self._db.execute(query, (quote(phrase),)))
            return list_postings((match.row, *match.counts[0][1:]) for match in matches)
        where = "term >= ?1 AND term < ?1 || char(0x10ffff)" if phrase.is_prefix else "term = ?1"
        query = f"SELECT group_concat(doc * 2 + (col = 'context')) FROM temp.occurrences WHERE {where}"
        keys = _parse_numbers(self._db.execute(query, stems).get)
        if phrase.is_prefix:
            keys.sort()
        return count_postings(keys)

    def postings_within(self, phrase: Phrase, within: Sequence[CountedPhrase]) -> Postings:
        """Return the chunks that have a phrase and any of the phrases ``within``, as if each had the phrase once."""
        query = "SELECT group_concat(rowid) FROM chunks_fts WHERE chunks_fts MATCH ?"
        rows = _parse_numbers(self._db.execute(query, (f"({either(within)}) AND {quote(phrase)}",)).get)
        return make_postings(rows, np.ones(len(rows)), np.zeros(len(rows)))

    def passing(self, rows: Sequence[int], filters: Filter) -> list[int]:
        where, values = filter_sql(filters)
        query = f"SELECT c.row FROM chunks c WHERE c.{IN_ROWS} AND {where}"
        return [row for (row,) in self._db.execute(query, (pack_rows(rows), *values))]

    def newest_first(self, rows: Sequence[int], limit: int) -> list[int]:
        query = f"SELECT c.row FROM chunks c WHERE c.{IN_ROWS} ORDER BY c.timestamp DESC, {CHUNK_ORDER} LIMIT ?"
        return [row for (row,) in self._db.execute(query, (pack_rows(rows), limit))]

    def totals(self, phrases: Sequence[CountedPhrase]) -> WordTotals:
        return self._words.remember("totals", lambda: self._read_totals(either(phrases)))

    def _read_totals(self, expression: str) -> WordTotals:
        query = "SELECT word_totals(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT 1"
        return WordTotals(*array("Q", self._db.execute(query, (expression,)).get))

    def count_common(self, phrases: Sequence[CountedPhrase], rows: Sequence[int]) -> list[KeywordMatch]:
        in_one_pass = sum(phrase.rows for phrase in phrases) <= _ONE_PASS
        return self._words.count_phrases(either(phrases), rows, in_one_pass=in_one_pass)[0]


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

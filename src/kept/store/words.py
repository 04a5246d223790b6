"""Full-text search: which chunks have which words, how often, and how rare a word is."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from kept.records import Filter
from kept.sqlite import pack_rows
from kept.store.generation import filter_sql
from kept.store.vectors import CHUNK_ORDER
from kept.values import frozen

_TOKENIZER = ("porter", ["unicode61", "remove_diacritics", "2", "categories", "L* N* Co Mn Mc So"])


@frozen
class KeywordMatch:
    """A chunk with at least one of the words, and how often it has each, in its text and in its context."""

    row: int
    counts: tuple[tuple[int, int], ...]
    length: int


class WordIndex:
    def __init__(self, db: apsw.Connection) -> None:
        self.db = db
        db.register_fts5_function("phrase_counts", _phrase_counts)
        db.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab('main', 'chunks_fts', 'row')")
        self._tokenizer = db.fts5_tokenizer(*_TOKENIZER)

    def stems(self, text: str) -> list[str]:
        """Return the words of a text as the index stores them."""
        tokens: Any = self._tokenizer(text.encode("utf-8", "replace"), apsw.FTS5_TOKENIZE_QUERY, None)
        return [token[2] for token in tokens]

    def document_frequency(self, stem: str) -> int:
        """Return how many chunks contain a stem."""
        return int(self.db.execute("SELECT doc FROM temp.vocabulary WHERE term = ?", (stem,)).get or 0)

    def phrase_frequency(self, expression: str, *, cap: int) -> int:
        """Return how many chunks contain a phrase, at most ``cap``. The frequencies of its words do not tell."""
        query = "SELECT count(*) FROM (SELECT 1 FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT ?)"
        return int(self.db.execute(query, (expression, cap)).get)

    def chunk_count(self) -> int:
        return int(self.db.execute("SELECT count(*) FROM chunks").get)

    def match(
        self, expression: str, *, phrases: Sequence[int], weights: tuple[float, float], limit: int, filters: Filter
    ) -> tuple[list[KeywordMatch], float]:
        """Return the best chunks by BM25, and the mean length of a chunk in words. Of equal chunks at the end, the
        first by path and line.

        ``phrases`` are the numbers of the phrases in the expression whose counts are returned.
        """
        rank = f"bm25(chunks_fts, {weights[0]}, {weights[1]})"
        join = " JOIN chunks c ON c.row = chunks_fts.rowid"
        where, values = filter_sql(filters) if filters else ("1", [])
        select = f"SELECT chunks_fts.rowid, phrase_counts(chunks_fts), {rank} AS score FROM chunks_fts"
        condition = f" WHERE {where} AND chunks_fts MATCH ?"
        # Sorted by the function: with `ORDER BY rank`, FTS5 would read all rows twice.
        rows: list[Any] = self.db.execute(
            f"{select}{join if filters else ''}{condition} ORDER BY score LIMIT ?", (*values, expression, limit + 1)
        ).fetchall()
        if len(rows) > limit and rows[-1][2] == rows[-2][2]:
            last = rows[-1][2]
            rows = [row for row in rows if row[2] != last]
            rows += self.db.execute(
                f"{select}{join}{condition} AND {rank} = ? ORDER BY {CHUNK_ORDER} LIMIT ?",
                (*values, expression, last, limit - len(rows)),
            )
        return _unpack(rows[:limit], phrases)

    def match_rows(self, expression: str, rows: Sequence[int], *, few: bool) -> tuple[list[KeywordMatch], float]:
        """Return the same for those of the given rows that match.

        If ``few`` rows match the expression, reading all of them is faster than looking up each given row; the plus
        makes SQLite do that.
        """
        rowid = "+rowid" if few else "rowid"
        matches = self.db.execute(
            "SELECT rowid, phrase_counts(chunks_fts) FROM chunks_fts"
            f" WHERE chunks_fts MATCH ? AND {rowid} IN (SELECT value FROM json_each(?))",
            (expression, pack_rows(rows)),
        )
        return _unpack(matches, None)


def _unpack(rows: Iterable[Sequence[Any]], phrases: Sequence[int] | None) -> tuple[list[KeywordMatch], float]:
    matches: list[KeywordMatch] = []
    mean = 1.0
    for row, packed, *_ in rows:
        numbers = array("I")
        numbers.frombytes(packed)
        length, total, chunks = numbers[0], numbers[1], numbers[2]
        mean = total / max(1, chunks)
        counted = range((len(numbers) - 3) // 2) if phrases is None else phrases
        counts = tuple((numbers[3 + 2 * at], numbers[4 + 2 * at]) for at in counted)
        matches.append(KeywordMatch(row, counts, length))
    return matches, mean


def _phrase_counts(api: apsw.FTS5ExtensionApi, /, *_: Any) -> bytes:
    """Return the numbers that BM25 needs for one row, packed: its length, the sum of all lengths, the number of rows,
    and for each phrase how often the text and the context contain it. Called only for rows that are returned."""
    numbers = array("I", [api.column_size(0), min(api.column_total_size(0), 0xFFFFFFFF), api.row_count])
    for phrase in range(api.phrase_count):
        text, context = api.phrase_locations(phrase)
        numbers.append(len(text))
        numbers.append(len(context))
    return numbers.tobytes()

"""The keyword side of the index: which chunks have which words, how often, and how rare a word is."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from kept.records import Filter
from kept.store.connection import IN_PLACE, packed_rows
from kept.store.generation import filter_sql
from kept.store.rows import KeywordMatch

_TOKENIZER = ("porter", ["unicode61", "remove_diacritics", "2", "categories", "L* N* Co Mn Mc So"])


class WordIndex:
    def __init__(self, db: apsw.Connection) -> None:
        self.db = db
        db.register_fts5_function("phrase_counts", _phrase_counts)
        db.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab('main', 'chunks_fts', 'row')")
        self._tokenizer = db.fts5_tokenizer(*_TOKENIZER)

    def stems(self, text: str) -> list[str]:
        """The words of a text as the index stores them."""
        tokens: Any = self._tokenizer(text.encode("utf-8", "replace"), apsw.FTS5_TOKENIZE_QUERY, None)
        return [token[2] for token in tokens]

    def document_frequency(self, stem: str) -> int:
        """In how many chunks a stem stands."""
        return int(self.db.execute("SELECT doc FROM temp.vocabulary WHERE term = ?", (stem,)).get or 0)

    def phrase_frequency(self, expression: str, *, cap: int) -> int:
        """In how many chunks a phrase stands, counted up to a cap. Its words alone do not tell."""
        query = "SELECT count(*) FROM (SELECT 1 FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT ?)"
        return int(self.db.execute(query, (expression, cap)).get)

    def chunk_count(self) -> int:
        return int(self.db.execute("SELECT count(*) FROM chunks").get)

    def match(
        self, expression: str, *, phrases: Sequence[int], weights: tuple[float, float], limit: int, filters: Filter
    ) -> tuple[list[KeywordMatch], float]:
        """The best chunks by BM25, and the mean length of a chunk in words. Of equal ones at the end, those that come
        first by path and line.

        ``phrases`` are the phrases of the expression, by number, whose counts are wanted.
        """
        rank = f"bm25(chunks_fts, {weights[0]}, {weights[1]})"
        join = " JOIN chunks c ON c.row = chunks_fts.rowid"
        where, values = filter_sql(filters) if filters else ("1", [])
        select = f"SELECT chunks_fts.rowid, phrase_counts(chunks_fts), {rank} AS score FROM chunks_fts"
        condition = f" WHERE {where} AND chunks_fts MATCH ?"
        # Sorted by the function itself: through `ORDER BY rank`, FTS5 would go through all rows twice.
        found: list[Any] = self.db.execute(
            f"{select}{join if filters else ''}{condition} ORDER BY score LIMIT ?", (*values, expression, limit + 1)
        ).fetchall()
        if len(found) > limit and found[-1][2] == found[-2][2]:
            last = found[-1][2]
            found = [match for match in found if match[2] != last]
            found += self.db.execute(
                f"{select}{join}{condition} AND {rank} = ? ORDER BY {IN_PLACE} LIMIT ?",
                (*values, expression, last, limit - len(found)),
            )
        return _unpack(found[:limit], phrases)

    def match_rows(self, expression: str, rows: Sequence[int], *, few: bool) -> tuple[list[KeywordMatch], float]:
        """The same for given rows, those of them that match.

        Where few rows match at all, going through them is quicker than looking for each of the given ones; the plus
        tells SQLite to do that.
        """
        rowid = "+rowid" if few else "rowid"
        found = self.db.execute(
            "SELECT rowid, phrase_counts(chunks_fts) FROM chunks_fts"
            f" WHERE chunks_fts MATCH ? AND {rowid} IN (SELECT value FROM json_each(?))",
            (expression, packed_rows(rows)),
        )
        return _unpack(found, None)


def _unpack(found: Iterable[Sequence[Any]], phrases: Sequence[int] | None) -> tuple[list[KeywordMatch], float]:
    matches: list[KeywordMatch] = []
    mean = 1.0
    for row, packed, *_ in found:
        numbers = array("I")
        numbers.frombytes(packed)
        length, total, chunks = numbers[0], numbers[1], numbers[2]
        mean = total / max(1, chunks)
        wanted = range((len(numbers) - 3) // 2) if phrases is None else phrases
        counts = tuple((numbers[3 + 2 * at], numbers[4 + 2 * at]) for at in wanted)
        matches.append(KeywordMatch(row, counts, length))
    return matches, mean


def _phrase_counts(api: apsw.FTS5ExtensionApi, /, *_: Any) -> bytes:
    """What BM25 needs, for one row: its length, the sum of all lengths, the number of rows, and for each phrase
    how often it stands in the text and in the context. Called for the rows that are returned, not for all that match.
    """
    numbers = array("I", [api.column_size(0), min(api.column_total_size(0), 0xFFFFFFFF), api.row_count])
    for phrase in range(api.phrase_count):
        text, context = api.phrase_locations(phrase)
        numbers.append(len(text))
        numbers.append(len(context))
    return numbers.tobytes()

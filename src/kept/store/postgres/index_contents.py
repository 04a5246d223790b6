"""Everything that an index has, read from either store in the same order and form, so that two can be compared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol

import numpy as np

from kept.store.index import Index
from kept.store.postgres.index import PostgresIndex
from kept.store.postgres.posting_tables import POSITION_BITS
from kept.store.postgres.stems import shorten

FILE_COLUMNS = "source, path, hash, size, mtime_ns, ctime_ns, checked_ns, warning, mark"
CHUNK_COLUMNS = (
    "row, source, path, start_line, end_line, hash, embed_hash, heading, text, timestamp, session_key, channel,"
    " recalled, content_key"
)
NOTE_COLUMNS = {
    "notes": "path, title, timestamp, dated, updated",
    "note_names": "key, path, kind, name",
    "note_tags": "key, path, first_line, last_line, tag",
    "note_links": "path, number, line, key, target, heading, label, embed, by_path",
}
META_OF_STORE = ("schema", "workspace", "generation")
"""Keys that are about the store itself, and not copied."""
_STEMS_AT_ONCE = 500
_ROWS_AT_ONCE = 1_000

Row = tuple[Any, ...]


class IndexContents(Protocol):
    """The tables of the live generation, each in a fixed order."""

    def meta(self) -> dict[str, str]: ...

    def files(self) -> Iterable[Row]: ...

    def chunks(self) -> Iterable[Row]: ...

    def vectors(self) -> Iterable[Row]: ...

    def note_rows(self, table: str) -> Iterable[Row]: ...

    def entries(self) -> Iterator[tuple[str, Any]]:
        """Yield each stem with its entries, as an array of numpy."""


class SqliteContents:
    def __init__(self, index: Index) -> None:
        self._db = index.db

    def _rows(self, query: str) -> Iterable[Row]:
        return self._db.execute(query)

    def meta(self) -> dict[str, str]:
        rows: Iterable[Any] = self._rows("SELECT key, value FROM meta ORDER BY key")
        return {key: value for key, value in rows if key not in META_OF_STORE}

    def files(self) -> Iterable[Row]:
        return self._rows(f"SELECT {FILE_COLUMNS} FROM files ORDER BY source, path")

    def chunks(self) -> Iterable[Row]:
        return self._rows(f"SELECT {CHUNK_COLUMNS} FROM chunks ORDER BY row")

    def vectors(self) -> Iterable[Row]:
        return self._rows("SELECT row, code FROM chunks_vec ORDER BY row")

    def note_rows(self, table: str) -> Iterable[Row]:
        columns = NOTE_COLUMNS[table]
        return self._rows(f"SELECT {columns} FROM {table} ORDER BY {', '.join(columns.split(', ')[:3])}")

    def entries(self) -> Iterator[tuple[str, Any]]:
        occurrences: Iterable[Any] = self._rows(
            f"SELECT term, ((doc * 2 + (col = 'context')) << {POSITION_BITS}) + offset FROM temp.occurrences"
        )
        for stem, group in groupby(occurrences, key=itemgetter(0)):
            yield shorten(stem), np.sort(np.array([entry for _, entry in group], dtype="<i8"))


class PostgresContents:
    def __init__(self, index: PostgresIndex) -> None:
        self._index = index
        self._session = index.live.session

    def _rows(self, query: str) -> list[Row]:
        return self._session.fetch(query, [self._index.live.number])

    def meta(self) -> dict[str, str]:
        query = "SELECT key, value FROM workspace_meta WHERE workspace = %s ORDER BY key"
        rows = self._session.fetch(query, [self._session.workspace])
        return {key: value for key, value in rows if key not in META_OF_STORE}

    def files(self) -> Iterable[Row]:
        return self._rows(f"SELECT {FILE_COLUMNS} FROM index_files WHERE generation = %s ORDER BY source, path")

    def chunks(self) -> Iterator[Row]:
        after = 0
        query = f"SELECT {CHUNK_COLUMNS} FROM chunks WHERE generation = %s AND row > %s ORDER BY row LIMIT %s"
        while rows := self._session.fetch(query, [self._index.live.number, after, _ROWS_AT_ONCE]):
            for *first, heading, text, timestamp, key, channel, recalled, content_key in rows:
                yield *first, heading.decode(), text.decode(), timestamp, key, channel, recalled, content_key
            after = rows[-1][0]

    def vectors(self) -> Iterable[Row]:
        return self._rows("SELECT row, code FROM chunk_vectors WHERE generation = %s ORDER BY row")

    def note_rows(self, table: str) -> Iterable[Row]:
        columns = NOTE_COLUMNS[table]
        order = ", ".join(columns.split(", ")[:3])
        rows = self._rows(f"SELECT {columns} FROM {table} WHERE generation = %s ORDER BY {order}")
        return (tuple(int(value) if isinstance(value, bool) else value for value in row) for row in rows)

    def entries(self) -> Iterator[tuple[str, Any]]:
        after = ""
        while stems := self._index.words.stems_after(after, limit=_STEMS_AT_ONCE):
            read = self._index.words.read_entries(stems)
            yield from ((stem, read[stem]) for stem in stems)
            after = stems[-1]


def digest(contents: IndexContents) -> dict[str, str]:
    """Return a hash of each table: two indexes with the same hashes answer every search alike."""
    tables: dict[str, Iterable[object]] = {
        "meta": sorted(contents.meta()),
        "files": contents.files(),
        "chunks": contents.chunks(),
        "vectors": contents.vectors(),
        **{table: contents.note_rows(table) for table in NOTE_COLUMNS},
        "words": ((stem, entries.tobytes()) for stem, entries in contents.entries()),
    }
    digests = {}
    for table, rows in tables.items():
        hashed = hashlib.sha256()
        for row in rows:
            hashed.update(repr(row).encode("utf-8", "replace"))
        digests[table] = hashed.hexdigest()
    return digests

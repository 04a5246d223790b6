"""What can still be read of a damaged index, brought into a new file: above all the embeddings, which cost money.

Every row is taken whose pages can be read and whose content is valid. The notes' own tables are not taken over, since
the next sync makes them anew; but the vectors of their chunks are, where the cache has lost them or never had them.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from kept.database_files import delete_database
from kept.sqlite import checksum_vfs
from kept.store.first_page import with_first_page
from kept.store.index import META_RECIPE, Index
from kept.store.mend import keep_codes
from kept.values import frozen

_META = (META_RECIPE, "workspace", "refused")
_MOST_PROBES = 1_000_000
_UNIT_TOLERANCE = 0.01
_UNREADABLE = (apsw.Error, UnicodeDecodeError)


@frozen
class Salvage:
    embeddings: int
    lost: int
    """Entries of the cache that could not be read, as far as they could be counted."""


def salvage(damaged: str, new: str, *, workspace: str | None) -> Salvage:
    """Make a new index at ``new`` with what is sound in the file at ``damaged``, which is only read.

    ``workspace`` is whose index it is, where the damaged file does not tell.
    """
    delete_database(new)
    index = Index(new)
    try:
        with _opened(damaged) as source, index.writing():
            meta = {} if source is None else _sound_meta(source)
            if workspace is not None:
                meta.setdefault("workspace", workspace)
            for key, value in meta.items():
                index.put_meta(key, value)
            return Salvage(0, 0) if source is None else _copy_embeddings(source, index)
    finally:
        index.close()  # writes its log into the file, so that the file can be moved by itself


@contextmanager
def _opened(path: str) -> Iterator[apsw.Connection | None]:
    """A connection that reads what it can; None where the file is no database any more."""
    with _readable(path) as source:
        if source is not None:
            yield source
            return
    with with_first_page(path) as repaired, _readable(repaired) as source:
        yield source


@contextmanager
def _readable(path: str) -> Iterator[apsw.Connection | None]:
    db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE, vfs=checksum_vfs())
    try:
        # With it SQLite opens a file that is shorter than it says, or whose other tables make no sense.
        db.pragma("writable_schema", True)
        try:
            db.execute("SELECT 1 FROM embedding_cache LIMIT 0").fetchall()
        except apsw.Error:
            yield None
        else:
            yield db
    finally:
        db.close()


def _sound_meta(source: apsw.Connection) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in _META:
        try:
            value = source.execute("SELECT value FROM meta WHERE key = ?", (key,)).get
            if value is not None:
                found[key] = json.loads(value)
        except (*_UNREADABLE, ValueError):
            continue
    return found


def _copy_embeddings(source: apsw.Connection, index: Index) -> Salvage:
    columns = "identity, hash, embedding, dims, used_at"
    valid = (row for _, row in _rows(source, "embedding_cache", columns) if _is_embedding(*row))
    index.db.executemany(f"INSERT OR REPLACE INTO embedding_cache ({columns}) VALUES (?, ?, ?, ?, ?)", valid)
    from_cache = index.cache.count()
    keep_codes(index, _uncached_codes(source, index))
    return Salvage(index.cache.count(), max(0, _count(source) - from_cache))


def _is_embedding(identity: object, key: object, embedding: object, dims: object, used_at: object) -> bool:
    if not (isinstance(identity, str) and isinstance(key, bytes) and isinstance(embedding, bytes)):
        return False
    if not (isinstance(dims, int) and isinstance(used_at, int) and len(embedding) == 4 * dims > 0):
        return False
    norm = math.hypot(*struct.unpack(f"<{dims}f", embedding))
    return norm == 0 or abs(norm - 1) < _UNIT_TOLERANCE


def _uncached_codes(source: apsw.Connection, index: Index) -> Iterator[tuple[bytes, bytes]]:
    identity = (index.get_meta(META_RECIPE) or {}).get("identity")
    known = "SELECT 1 FROM embedding_cache WHERE identity = ? AND hash = ?"
    codes = {row: code for row, (code,) in _rows(source, "chunks_vec", "code") if isinstance(code, bytes)}
    for row, (key,) in _rows(source, "chunks", "embed_hash"):
        if row in codes and isinstance(key, bytes) and index.db.execute(known, (identity, key)).get is None:
            yield key, codes[row]


def _count(source: apsw.Connection) -> int:
    try:
        return int(source.execute("SELECT count(*) FROM embedding_cache").get)
    except apsw.Error:
        return 0


def _rows(source: apsw.Connection, table: str, columns: str) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Every row of a table that can be read: from the front up to the first damage, from the back down to the last,
    and one by one in between."""
    low, high = 0, None
    select = f"SELECT rowid, {columns} FROM {table}"
    try:
        for number, *values in source.execute(f"{select} ORDER BY rowid"):
            low = number
            yield number, tuple(values)
    except _UNREADABLE:
        pass
    else:
        return
    try:
        for number, *values in source.execute(f"{select} WHERE rowid > ? ORDER BY rowid DESC", (low,)):
            high = number
            yield number, tuple(values)
    except _UNREADABLE:
        pass
    last = high if high is not None else _highest(source, table)
    for number in range(low + 1, min(last, low + 1 + _MOST_PROBES)):
        try:
            found = source.execute(f"{select} WHERE rowid = ?", (number,)).fetchone()
        except _UNREADABLE:
            continue
        if found is not None:
            yield number, tuple(found[1:])


def _highest(source: apsw.Connection, table: str) -> int:
    """One more than the highest row number that an index of the table knows, where the end of the table is damaged."""
    highest = 0
    for (name,) in source.execute("SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?", (table,)):
        try:
            found = source.execute(f'SELECT max(rowid) FROM {table} INDEXED BY "{name}"').get
        except apsw.Error:
            continue
        highest = max(highest, found or 0)
    return highest + 1

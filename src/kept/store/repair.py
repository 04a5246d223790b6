"""Repairs a damaged index: check it again, then repair it inside its file, or salvage its embeddings into a new one.

A file is repaired inside if its pages are sound and its tables contradict each other. Tables that come from the notes
are emptied, and the next sync fills them; the embedding cache stays, so nothing is embedded again.

Salvaging is for a file with damaged pages. Every embedding that can be read and is valid goes into a new file, since
embeddings cost money: those of the cache, and the vectors of chunks that the cache has lost or never had.
"""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from kept.errors import StoreDamaged
from kept.reports import REPAIRED, REPLACED, Repair
from kept.sqlite import checksum_vfs, create_private, database_files, delete_database, file_number, replace_damaged
from kept.store.index import OLD_PAGE_BYTES, PAGE_BYTES, Index, connect
from kept.store.integrity import FILE, Finding, check_file, check_index, is_intact
from kept.store.rows import META_RECIPE
from kept.store.vector_codes import dequantise

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())  # a command reports it in its answer; without a handler Python would print it too


_FROM_NOTES = frozenset({"files", "chunks", "chunks_fts", "notes"})
_REPAIRABLE_IN_PLACE = _FROM_NOTES | {"chunks_vec", "embedding_cache"}

_META = (META_RECIPE, "workspace", "refused")
_MAX_PROBES = 1_000_000
_UNIT_TOLERANCE = 0.01
_UNREADABLE = (apsw.Error, UnicodeDecodeError)

_PAGES_TO_CHECK = 8
_PAGE_COUNT_AT = 28
"""Offset in the file header of the number of pages."""
_RESERVED_AT = 20
"""Offset of the number of bytes per page that are reserved for the checksum layer."""


def repair_file(path: str, damage: StoreDamaged, *, workspace: str | None, is_certain: bool = False) -> Repair | None:
    """Repair the index at a path. Return None if it is sound: then the connection that saw the damage was stale.

    The caller holds the index's lock, so no process writes during the check, and has closed its own connection.
    ``is_certain`` skips the check: a fresh connection has met the damage too. ``workspace`` is the owner of the index,
    if the damaged file does not say.
    """
    if is_certain:
        findings = [Finding(FILE, damage.message)]
    else:  # a file that was deleted is created by opening it
        findings = [] if file_number(path) is None else check_file(path)
    if not findings:
        log.info("%s Checked again, the index is sound; nothing was changed.", damage.message)
        return None
    if _repair_in_place(path, findings):
        repair = Repair(os.path.basename(path), REPAIRED, times=1)
    else:
        new = f"{path}.new"
        try:
            embeddings, lost = _salvage(path, new, workspace)
            replace_damaged(path, new)
        finally:
            delete_database(new)
        repair = Repair(os.path.basename(path), REPLACED, times=1, embeddings=embeddings, lost=lost)
    reasons = "; ".join(dict.fromkeys(f"{finding.table}: {finding.problem}" for finding in findings[:3]))
    log.warning("%s %s (%s)", damage.message, describe_repair(repair), reasons)
    return repair


def describe_repair(repair: Repair) -> str:
    if repair.action == REPAIRED:
        return "It has been rebuilt from the notes; no embedding was lost."
    lost = f", {repair.lost} could not be read" if repair.lost else ""
    return f"It has been rebuilt from the notes; {repair.embeddings} embeddings were kept{lost}."


# repair inside the file


def _repair_in_place(path: str, findings: Sequence[Finding]) -> bool:
    """Repair what was found. Return False, with nothing changed, if that takes a new file."""
    tables = {finding.table for finding in findings}
    try:
        index = Index(path)
    except StoreDamaged:
        return False
    try:
        if not tables <= _REPAIRABLE_IN_PLACE:
            return False
        with index.writing():
            _repair_tables(index, tables)
        return not check_index(index)
    except StoreDamaged:  # a page that had to be read or freed is damaged after all
        return False
    finally:
        index.close()


def _repair_tables(index: Index, tables: set[str]) -> None:
    if "embedding_cache" in tables:
        index.db.execute("DELETE FROM embedding_cache WHERE length(embedding) NOT IN (dims, 4 * dims)")
    if tables & _FROM_NOTES or not _has_vectors(index):
        if _has_vectors(index):
            _cache_codes(index, _uncached_codes(index))
        index.start_over(index.generation_number() + 1)
    elif "chunks_vec" in tables:
        index.live.vectors.repair()


def _has_vectors(index: Index) -> bool:
    tables = ("chunks", "chunks_vec", "vec_packs", "vec_dead")
    query = f"SELECT count(*) FROM sqlite_schema WHERE name IN ({', '.join('?' * len(tables))})"
    return bool(index.db.execute(query, tables).get == len(tables))


def _uncached_codes(index: Index) -> Iterator[tuple[bytes, bytes]]:
    """Return embed hash and code of each intact chunk that the cache does not have."""
    rows: list[Any] = index.db.execute(
        "SELECT c.text, c.hash, c.embed_hash, v.code FROM chunks c JOIN chunks_vec v ON v.row = c.row"
        " WHERE NOT EXISTS (SELECT 1 FROM embedding_cache e WHERE e.identity = ? AND e.hash = c.embed_hash)",
        (_identity(index),),
    ).fetchall()
    return ((key, code) for text, hash_, key, code in rows if is_intact(text, hash_))


def _cache_codes(index: Index, codes: Iterable[tuple[bytes, bytes]]) -> None:
    """Put vectors of chunks into the cache, which may hold fewer than the index. Inside the caller's transaction."""
    identity = _identity(index)
    if identity:
        vectors = ((key, dequantise(code)) for key, code in codes if any(code))
        index.cache.put(identity, vectors, now_s=int(time.time()))


def _identity(index: Index) -> str | None:
    return (index.get_meta(META_RECIPE) or {}).get("identity")


# salvaging into a new file


def _salvage(damaged: str, new: str, workspace: str | None) -> tuple[int, int]:
    """Create an index at ``new`` with what is sound in the file at ``damaged``, which is only read.

    Return the number of its embeddings, and of the entries that could not be read, as far as they could be counted.
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
            return (0, 0) if source is None else _copy_embeddings(source, index)
    finally:
        index.close()  # writes the log into the file, so that the file can be moved alone


@contextmanager
def _opened(path: str) -> Iterator[apsw.Connection | None]:
    """Return a connection that reads as much as possible, or None if the file is no longer a database."""
    with _readable(path) as source:
        if source is not None:
            yield source
            return
    with _with_first_page(path) as repaired, _readable(repaired) as source:
        yield source


@contextmanager
def _readable(path: str) -> Iterator[apsw.Connection | None]:
    db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE, vfs=checksum_vfs())
    try:
        # Lets SQLite open a file that is shorter than its header says, or whose other tables are invalid.
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
    meta: dict[str, Any] = {}
    for key in _META:
        try:
            value = source.execute("SELECT value FROM meta WHERE key = ?", (key,)).get
            if value is not None:
                meta[key] = json.loads(value)
        except (*_UNREADABLE, ValueError):
            continue
    return meta


def _copy_embeddings(source: apsw.Connection, index: Index) -> tuple[int, int]:
    columns = "identity, hash, embedding, dims, used_at"
    valid = (row for _, row in _iter_rows(source, "embedding_cache", columns) if _is_embedding(*row))
    index.db.executemany(f"INSERT OR REPLACE INTO embedding_cache ({columns}) VALUES (?, ?, ?, ?, ?)", valid)
    from_cache = index.cache.count()
    _cache_codes(index, _salvaged_codes(source, index))
    try:
        count = int(source.execute("SELECT count(*) FROM embedding_cache").get)
    except apsw.Error:
        count = 0
    return index.cache.count(), max(0, count - from_cache)


def _is_embedding(identity: object, key: object, embedding: object, dims: object, used_at: object) -> bool:
    if not (isinstance(identity, str) and isinstance(key, bytes) and isinstance(embedding, bytes)):
        return False
    if not (isinstance(dims, int) and isinstance(used_at, int) and dims > 0 and len(embedding) in (dims, 4 * dims)):
        return False
    if len(embedding) == dims:
        return True
    norm = math.hypot(*struct.unpack(f"<{dims}f", embedding))
    return norm == 0 or abs(norm - 1) < _UNIT_TOLERANCE


def _salvaged_codes(source: apsw.Connection, index: Index) -> Iterator[tuple[bytes, bytes]]:
    identity = _identity(index)
    cached = "SELECT 1 FROM embedding_cache WHERE identity = ? AND hash = ?"
    codes = {row: code for row, (code,) in _iter_rows(source, "chunks_vec", "code") if isinstance(code, bytes)}
    for row, (key,) in _iter_rows(source, "chunks", "embed_hash"):
        if row in codes and isinstance(key, bytes) and index.db.execute(cached, (identity, key)).get is None:
            yield key, codes[row]


def _iter_rows(source: apsw.Connection, table: str, columns: str) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield every readable row of a table: from the front up to the first damage, from the back down to the last,
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
    end = high if high is not None else _end_of_rows(source, table)
    for number in range(low + 1, min(end, low + 1 + _MAX_PROBES)):
        try:
            row = source.execute(f"{select} WHERE rowid = ?", (number,)).fetchone()
        except _UNREADABLE:
            continue
        if row is not None:
            yield number, tuple(row[1:])


def _end_of_rows(source: apsw.Connection, table: str) -> int:
    """Return one more than the highest row number in any index of the table, for a table whose end is damaged."""
    highest = 0
    query = "SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?"
    try:
        names = source.execute(query, (table,)).fetchall()
    except _UNREADABLE:  # the schema goes on in a page that is damaged, too
        return 0
    for (name,) in names:
        try:
            row = source.execute(f'SELECT max(rowid) FROM {table} INDEXED BY "{name}"').get
        except apsw.Error:
            continue
        highest = max(highest, row or 0)
    return highest + 1


# The first page of a database says where every table begins; without it no table can be read. The permanent tables
# are the first to be created in an empty file, so they begin at the same pages in every index: a copy of the damaged
# file that gets the first page of an empty index can be read again.


@contextmanager
def _with_first_page(path: str) -> Iterator[str]:
    """Give a copy of a damaged index with the first page of an empty one. It is deleted afterwards."""
    empty, copy = f"{path}.empty", f"{path}.copy"
    delete_database(empty)
    delete_database(copy)
    try:
        page_bytes = _find_page_bytes(path)
        connect(empty, page_bytes=page_bytes).close()
        for original, copied in zip(database_files(path)[:2], database_files(copy), strict=False):
            if os.path.exists(original):
                create_private(copied)
                shutil.copyfile(original, copied)
        with open(empty, "rb") as file:
            page = file.read(page_bytes)
        with open(copy, "r+b") as file:
            pages = os.fstat(file.fileno()).st_size // page_bytes
            file.write(_with_page_count(page, max(1, pages)))
        yield copy
    finally:
        delete_database(empty)
        delete_database(copy)


def _find_page_bytes(path: str) -> int:
    """Return the page size of a file whose header is destroyed: the one in which another page has its checksum."""
    with open(path, "rb") as file:
        for page_bytes in (PAGE_BYTES, OLD_PAGE_BYTES):
            for number in range(1, _PAGES_TO_CHECK):
                file.seek(number * page_bytes)
                page = file.read(page_bytes)
                if len(page) == page_bytes and any(page) and _checksum(page[:-8]) == page[-8:]:
                    return page_bytes
    return PAGE_BYTES


def _with_page_count(page: bytes, pages: int) -> bytes:
    reserved = page[_RESERVED_AT]
    page = page[:_PAGE_COUNT_AT] + struct.pack(">I", pages) + page[_PAGE_COUNT_AT + 4 :]
    return page[:-reserved] + _checksum(page[:-reserved]) if reserved else page


def _checksum(content: bytes) -> bytes:
    """Return the checksum that SQLite's checksum layer stores in the last eight bytes of a page."""
    first = second = 0
    for left, right in struct.iter_unpack("<II", content):
        first = (first + left + second) & 0xFFFFFFFF
        second = (second + right + first) & 0xFFFFFFFF
    return struct.pack("<II", first, second)

"""OpenClaw's database of an agent, which is only read. Each row of its transcripts is a line of the file format.

A database without a log is opened as immutable, so that SQLite creates and locks nothing beside it. One with a log is
copied first: reading the log in place would write to OpenClaw's folder.
"""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any
from urllib.parse import quote

import apsw

from kept.limits import as_dict
from kept.sessions.importers.source import Record, Source, file_size, load_json

ENDINGS = (".sqlite", ".sqlite3", ".db")
_MAGIC = b"SQLite format 3\0"
_COPY_TRIES = 3
_LARGEST_ROW = 64_000_000
_LISTS = (
    ("session_windows", "session_id", "session_key", "NULL"),
    ("session_nodes", "current_session_id", "session_key", "entry_json"),
    ("session_entries", "session_id", "session_key", "entry_json"),
)


class DatabaseUnreadable(Exception):
    """A database cannot be read. The message is the reason, without the path: the caller knows that."""


def is_database(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


class OpenClawDatabase:
    """An open database. Raises DatabaseUnreadable if it is damaged or is not OpenClaw's."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.listed: dict[str, tuple[str, dict[str, Any]]] = {}
        self.archived = 0
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        try:
            self._db = self._open()
            self._columns = self._columns_of("transcript_events")
            self._read_lists()
        except (apsw.Error, OSError, UnicodeError) as exc:
            self.close()
            raise DatabaseUnreadable(f"cannot be read ({exc})") from exc

    def __enter__(self) -> OpenClawDatabase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if hasattr(self, "_db"):
            self._db.close()
        if self._copy is not None:
            self._copy.cleanup()

    def _open(self) -> apsw.Connection:
        path = self.path
        if file_size(f"{path}-wal"):
            self._copy = tempfile.TemporaryDirectory(prefix="kept-")
            path = _copy_at_rest(path, self._copy.name)
            return apsw.Connection(path)
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        return apsw.Connection(f"file:{quote(os.path.abspath(path))}?mode=ro&immutable=1", flags=flags)

    @property
    def has_transcripts(self) -> bool:
        return {"session_id", "seq", "event_json"} <= self._columns

    def _columns_of(self, table: str) -> set[str]:
        return {str(name) for (name,) in self._db.execute("SELECT name FROM pragma_table_info(?)", (table,))}

    def _read_lists(self) -> None:
        for table, session_id, key, entry in _LISTS:
            if {session_id, key} <= self._columns_of(table):
                for row in self._db.execute(f"SELECT {session_id}, {key}, {entry} FROM {table}"):
                    self._add_listed(*row)
        if self._columns_of("session_transcript_cold_archives"):
            self.archived = sum(1 for _ in self._db.execute("SELECT 1 FROM session_transcript_cold_archives"))

    def _add_listed(self, session_id: Any, key: Any, entry: Any) -> None:
        if isinstance(session_id, str) and isinstance(key, str):
            fields = as_dict(load_json(entry.encode("utf-8", "replace"))) if isinstance(entry, str) else {}
            self.listed[session_id] = (key, fields or self.listed.get(session_id, ("", {}))[1])

    def sources(self) -> Iterator[Source]:
        try:
            query = "SELECT DISTINCT session_id FROM transcript_events ORDER BY session_id"
            for session_id in [value for (value,) in self._db.execute(query) if isinstance(value, str)]:
                yield _DatabaseRows(self.path, session_id, self._rows)
        except (apsw.Error, UnicodeError) as exc:
            raise DatabaseUnreadable(f"cannot be read to its end ({exc})") from exc

    def _rows(self, session_id: str) -> Iterator[tuple[int, Any, Any, Any]]:
        packed = "event_zstd" if "event_zstd" in self._columns else "NULL"
        size = "event_utf8_bytes" if "event_utf8_bytes" in self._columns else "NULL"
        query = f"SELECT seq, event_json, {packed}, {size} FROM transcript_events WHERE session_id = ? ORDER BY seq"
        yield from self._db.execute(query, (session_id,))


class _DatabaseRows(Source):
    """Rows of one session."""

    def __init__(self, path: str, session_id: str, rows: Callable[[str], Iterator[tuple[int, Any, Any, Any]]]) -> None:
        super().__init__(path)
        self.session_id = session_id
        self.is_whole = True
        self._iter_rows = rows

    def records(self) -> Iterator[Record]:
        try:
            for seq, text, packed, size in self._iter_rows(self.session_id):
                raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
                if raw is None and packed is not None:
                    raw = self._unpack(packed, size)
                if isinstance(raw, bytes):
                    yield from self.parse(raw.strip(), seq if isinstance(seq, int) else 0)
                elif self.is_whole:
                    self.report("the row holds no record", line=seq if isinstance(seq, int) else None)
        except (apsw.Error, UnicodeError) as exc:
            self.is_whole = False
            self.report(f"session {self.session_id} cannot be read to its end ({exc})")

    def _unpack(self, packed: Any, size: Any) -> bytes | None:
        """Decompress a row. If that is not possible, the session would have holes, so it is not imported."""
        unpack = _find_decompressor()
        try:
            if unpack is None or not isinstance(packed, bytes) or not isinstance(size, int) or size > _LARGEST_ROW:
                raise ValueError("reading them needs the package zstandard" if unpack is None else "it is damaged")
            raw = unpack(packed, size)
            if len(raw) != size:
                raise ValueError("it is damaged")
        except Exception as exc:  # noqa: BLE001 - the package documents no common error
            if self.is_whole:
                self.report(f"session {self.session_id} has compressed records: {exc}")
            self.is_whole = False
            return None
        return raw


def _find_decompressor() -> Callable[[bytes, int], bytes] | None:
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError:
        return None
    return lambda packed, size: bytes(zstandard.ZstdDecompressor().decompress(packed, max_output_size=size))


def _copy_at_rest(path: str, folder: str) -> str:
    """Copy a database and its log, and make sure that neither changed meanwhile. Return the path of the copy."""
    copy = os.path.join(folder, "copy.sqlite")
    for _ in range(_COPY_TRIES):
        before = _states(path)
        shutil.copyfile(path, copy)
        shutil.copyfile(f"{path}-wal", f"{copy}-wal")
        if _states(path) == before:
            return copy
    raise OSError(0, "it is being written to; try again when OpenClaw is not running")


def _states(path: str) -> list[tuple[int, int]]:
    states = (os.stat(part) for part in (path, f"{path}-wal"))
    return [(state.st_size, state.st_mtime_ns) for state in states]

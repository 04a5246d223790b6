"""`PostgresStorage`: documents and logs of one root as rows.

A commit is one transaction of two round trips: the first one locks the root and reads what the changes depend on, the
second one writes. What decides in between is Python that all storages share. Whoever lost the confirmation of a commit
repeats it, and its receipt tells whether it was made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from kept.base.clock import new_id
from kept.base.limits import printable_line
from kept.base.values import frozen
from kept.errors import DocumentNotFound, LockBusy, NoteTooLarge, PathRefused, StorageConflict
from kept.storage.contract import (
    START,
    Change,
    Changed,
    Choose,
    Cursor,
    Document,
    DocumentInfo,
    Ends,
    Lease,
    LogInfo,
    LogLine,
    LogPosition,
    OnRefused,
    check_changes,
    check_name,
    iter_chosen,
)
from kept.storage.postgres.commit import Commit, targets_of
from kept.storage.postgres.database import Database, Row
from kept.storage.postgres.leases import LeaseKeeper

_NO_LIMIT = 1 << 31
"""More bytes than a column can have."""
_BLOCK_LINES = 500
_NO_OFFSET = (1 << 63) - 1
_FIRST_BLOCK_LINES = 20
"""Read backwards first: most readers want the last lines only."""
_POLL_S = 0.25
_TIMELINE = "substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)"
"""Changes with a failover. A standby that took over may lack the last commits, and uses their numbers again."""


class PostgresStorage:
    """Safe between threads, processes and servers. Holds no connection between calls."""

    def __init__(self, database: Database, name: str, *, leases: LeaseKeeper | None = None) -> None:
        self._database, self.name = database, name
        self._leases = leases or LeaseKeeper(database)
        self._root = 0
        self.documents = PostgresDocuments(self)
        self.logs = PostgresLogs(self)

    def commit(self, changes: Sequence[Change], *, lease: Lease | None = None) -> Ends:
        check_changes(changes)
        for change in changes:
            for name in targets_of(change):
                require_text(name)
        if not changes:
            return {}
        commit = Commit(self._database, self.get_root(), changes, lease, new_id())
        return self._database.repeat_if_lost(commit.run)

    def get_root(self) -> int:
        """Return the number of this root. Make it if it is new."""
        if not self._root:
            rows = self._database.query(
                "INSERT INTO kept.roots (name) VALUES (%(name)s) ON CONFLICT (name) DO UPDATE SET name = excluded.name"
                " RETURNING id",
                name=self.name,
            )
            self._root = rows[0][0]
        return self._root

    def query(self, text: str, **values: Any) -> list[Row]:
        """Read with one statement, in which `root` is the number of this root."""
        return self._database.query(text, root=self.get_root(), **values)

    def exists(self) -> bool:
        return bool(self._database.query("SELECT 1 FROM kept.roots WHERE name = %(name)s", name=self.name))

    def make(self, folder: str = "") -> None:
        self.get_root()

    def is_writable(self, folder: str = "") -> bool:
        return True

    @contextmanager
    def lease(self, name: str, *, wait_s: float) -> Iterator[Lease]:
        check_name(name)
        deadline = time.monotonic() + wait_s
        while (lease := self._leases.take(self.get_root(), name)) is None:
            if time.monotonic() >= deadline:
                raise LockBusy(f"Another process is holding the lease '{name}'.")
            time.sleep(min(_POLL_S, max(0.0, deadline - time.monotonic())))
        try:
            yield lease
        finally:
            self._leases.give_back(self.get_root(), lease)


@frozen
class _SeenCommit:
    """Cursor: number of the last commit that was seen, and the server's timeline, on which it means something."""

    timeline: str
    number: int


_INFO = "path, changed, octet_length(data), modified_ns"


class PostgresDocuments:
    def __init__(self, storage: PostgresStorage) -> None:
        self._storage = storage

    def list(
        self, prefix: str = "", *, choose: Choose | None = None, on_refused: OnRefused | None = None
    ) -> Iterator[DocumentInfo]:
        rows = self._storage.query(
            f"SELECT {_INFO} FROM kept.documents"
            " WHERE root = %(root)s AND data IS NOT NULL AND starts_with(path, %(prefix)s) ORDER BY path",
            prefix=prefix,
        )
        infos = {row[0]: _info(row) for row in rows}
        for path in iter_chosen(list(infos), prefix, choose):
            yield infos[path]

    def find(self, path: str) -> DocumentInfo | None:
        require_text(path)
        rows = self._storage.query(
            f"SELECT {_INFO} FROM kept.documents WHERE root = %(root)s AND path = %(path)s AND data IS NOT NULL",
            path=path,
        )
        return _info(rows[0]) if rows else None

    def read(self, path: str, *, max_bytes: int | None = None) -> Document:
        require_text(path)
        rows = self._storage.query(
            f"SELECT {_INFO}, version, CASE WHEN octet_length(data) <= %(most)s THEN data END"
            " FROM kept.documents WHERE root = %(root)s AND path = %(path)s AND data IS NOT NULL",
            path=path,
            most=_NO_LIMIT if max_bytes is None else max_bytes,
        )
        if not rows:
            raise DocumentNotFound(f"{printable_line(path)}: there is no such document.")
        info, version, data = _info(rows[0]), *rows[0][-2:]
        if data is None:
            raise NoteTooLarge(f"{printable_line(path)}: {info.size:,} bytes, more than the limit of {max_bytes:,}.")
        return Document(path, data, version, info)

    def is_same(self, path: str, other: str) -> bool:
        return path == other and self.find(path) is not None

    def changes(self, since: Cursor | None = None) -> tuple[Sequence[Changed], Cursor]:
        seen = since if isinstance(since, _SeenCommit) else _SeenCommit("", -1)
        rows = self._since(seen.number)
        timeline, number = rows[0][:2]
        if timeline != seen.timeline and seen.number >= 0:
            rows = self._since(-1)
            timeline, number = rows[0][:2]
        is_first = timeline != seen.timeline
        changed = [
            Changed(row[2], _info(row[2:]) if row[4] is not None else None)
            for row in rows
            if row[2] is not None and not (is_first and row[4] is None)
        ]
        return changed, _SeenCommit(timeline, number)

    def _since(self, number: int) -> Sequence[Row]:
        """Return what changed after a commit, each with the number of the last one: one statement, so one snapshot."""
        return self._storage.query(
            f"SELECT {_TIMELINE}, r.version, {_INFO} FROM kept.roots r"
            " LEFT JOIN kept.documents d ON d.root = r.id AND d.changed > %(number)s"
            " WHERE r.id = %(root)s ORDER BY path",
            number=number,
        )


def _info(row: Row) -> DocumentInfo:
    path, changed, size, modified_ns = row[:4]
    return DocumentInfo(path, str(changed), size, modified_ns, changed)


class PostgresLogs:
    def __init__(self, storage: PostgresStorage) -> None:
        self._storage = storage

    def read(self, name: str, start: LogPosition = START) -> Iterator[LogLine]:
        require_text(name)
        return self._read(name, start.offset)

    def _read(self, name: str, offset: int) -> Iterator[LogLine]:
        first = -1
        while rows := self._storage.query(
            "SELECT l.first, n.start, n.data FROM kept.logs l JOIN kept.log_lines n ON n.log = l.id"
            " WHERE l.root = %(root)s AND l.name = %(name)s AND n.start >= %(start)s ORDER BY n.start LIMIT %(most)s",
            name=name,
            start=offset,
            most=_BLOCK_LINES,
        ):
            if first not in (-1, rows[0][0]):
                raise StorageConflict(f"{printable_line(name)}: it was rewritten while it was read.")
            first = rows[0][0]
            for _, at, data in rows:
                offset = at + len(data) + 1
                yield LogLine(data, LogPosition(at), LogPosition(offset))

    def read_back(
        self, name: str, end: LogPosition | None = None, *, having: Sequence[bytes] = ()
    ) -> Iterator[LogLine]:
        require_text(name)
        offset, most = _NO_OFFSET if end is None else end.offset, _FIRST_BLOCK_LINES
        while rows := self._storage.query(
            "SELECT n.start, n.data FROM kept.logs l JOIN kept.log_lines n ON n.log = l.id"
            " WHERE l.root = %(root)s AND l.name = %(name)s AND n.start < %(start)s"
            " AND (%(anything)s OR EXISTS (SELECT FROM unnest(%(having)s::bytea[]) t WHERE position(t IN n.data) > 0))"
            " ORDER BY n.start DESC LIMIT %(most)s",
            name=name,
            start=offset,
            anything=not having,
            having=list(having),
            most=most,
        ):
            for offset, data in rows:
                yield LogLine(data, LogPosition(offset), LogPosition(offset + len(data) + 1))
            most = _BLOCK_LINES

    def find(self, name: str) -> LogInfo | None:
        require_text(name)
        rows = self._storage.query(f"{_LOG_INFO} AND name = %(name)s", name=name)
        return LogInfo(*rows[0]) if rows else None

    def end(self, name: str) -> LogPosition:
        require_text(name)
        rows = self._storage.query(
            "SELECT stop FROM kept.logs WHERE root = %(root)s AND name = %(name)s AND NOT is_removed", name=name
        )
        return LogPosition(rows[0][0]) if rows else START

    def list(self, prefix: str = "") -> Iterator[LogInfo]:
        rows = self._storage.query(f"{_LOG_INFO} AND starts_with(name, %(prefix)s) ORDER BY name", prefix=prefix)
        return (LogInfo(*row) for row in rows)


_LOG_INFO = (
    "SELECT name, changed::text, stop - first, modified_ns, generation, changed FROM kept.logs"
    " WHERE root = %(root)s AND NOT is_removed"
)


def require_text(name: str) -> None:
    """Raise PathRefused for a name that is not allowed, or that is no text: a column cannot have it."""
    check_name(name)
    with suppress(UnicodeEncodeError):
        name.encode()
        return
    raise PathRefused(f"{printable_line(name)}: the name is not valid Unicode.")

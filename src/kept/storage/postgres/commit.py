"""`Commit`: all changes of one commit in one transaction, with two round trips."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kept.base.limits import printable_line
from kept.errors import DocumentNotFound, LeaseLost, StorageConflict, WorkspaceMissing
from kept.storage.contract import (
    ABSENT,
    Append,
    Blank,
    Change,
    Ends,
    Erase,
    Lease,
    LogPosition,
    Move,
    Remove,
    Rewrite,
    Write,
    check_blank,
    is_log,
    version_conflict,
    version_of,
)
from kept.storage.postgres.database import Database, DeadlineConnection, Row, require_known

RECEIPT_DAYS = 30


@dataclass
class _Log:
    name: str
    first: int = 0
    stop: int = 0
    generation: int = 0
    is_removed: bool = True


@dataclass
class _Before:
    """What the first round trip read: whatever the changes depend on."""

    receipt: Ends | None = None
    documents: dict[str, str] = field(default_factory=dict)
    """Version of each document that there is."""
    logs: dict[str, _Log] = field(default_factory=dict)
    log_versions: dict[str, str] = field(default_factory=dict)
    lines: dict[tuple[str, int], bytes] = field(default_factory=dict)

    def version(self, path: str) -> str:
        if is_log(path):
            log = self.logs.get(path)
            return ABSENT if log is None or log.is_removed else self.log_versions.get(path, "unread")
        return self.documents.get(path, ABSENT)

    def log(self, name: str) -> _Log:
        return self.logs.setdefault(name, _Log(name))


class Commit:
    def __init__(
        self, database: Database, root: int, changes: Sequence[Change], lease: Lease | None, commit_id: str
    ) -> None:
        self._database, self._root = database, root
        self._changes, self._lease, self._commit_id = changes, lease, commit_id
        self._now_ns = time.time_ns()

    def run(self) -> Ends:
        """Make the changes, or return the receipt if they were made before."""
        with self._database.connection() as connection, connection.pipeline(), connection.transaction():
            number, before = self._read(connection)
            if before.receipt is not None:
                return before.receipt
            writing = _Writing(before, number, self._now_ns)
            for change in self._changes:
                writing.add(change)
            for text, values in [*writing.statements, *self._keep(writing.ends)]:
                connection.execute(self._database.sql(text), {"root": self._root, "number": number, **values})
            return writing.ends

    def _read(self, connection: DeadlineConnection) -> tuple[int, _Before]:
        """Lock the root, and return the number of this commit with what its changes depend on."""
        names = [name for change in self._changes for name in targets_of(change)]
        values = {
            "root": self._root,
            "commit_id": self._commit_id,
            "lease": self._lease.name if self._lease else "",
            "paths": [name for name in names if not is_log(name)],
            "names": [name for name in names if is_log(name)],
            "whole": [name for change in self._changes if _needs_version(change) for name in targets_of(change)],
            "blanked": [change.path for change in self._changes if isinstance(change, Blank)],
            "starts": [change.position.offset for change in self._changes if isinstance(change, Blank)],
        }
        # All are sent before the first answer is waited for.
        cursors = {name: connection.execute(self._database.sql(text), values) for name, text in _READS.items()}
        rows = {name: cursor.fetchall() for name, cursor in cursors.items()}
        if not rows["root"]:
            raise WorkspaceMissing("This memory was removed from the database.")
        ((number, migration),) = rows["root"]
        require_known(migration)
        if self._lease and rows["lease"] != [(self._lease.number,)]:
            raise LeaseLost(f"Another process holds the lease '{self._lease.name}'.")
        return number, _Before(
            receipt=_read_receipt(rows["receipt"][0][0]) if rows["receipt"] else None,
            documents=dict(_pairs(rows["documents"])),
            logs={row[0]: _Log(*row) for row in rows["logs"]},
            log_versions=dict(_pairs(rows["log_versions"])),
            lines={(name, start): data for name, start, data in rows["lines"]},
        )

    def _keep(self, ends: Ends) -> list[tuple[str, dict[str, Any]]]:
        """Return the statements that keep a receipt, and drop those of a month ago."""
        values = {"commit_id": self._commit_id, "receipt": _format_receipt(ends), "days": RECEIPT_DAYS}
        return [
            ("INSERT INTO kept.receipts VALUES (%(root)s, %(commit_id)s, %(receipt)s)", values),
            (
                "DELETE FROM kept.receipts"
                " WHERE root = %(root)s AND committed < clock_timestamp() - make_interval(days => %(days)s)",
                values,
            ),
        ]


def targets_of(change: Change) -> tuple[str, ...]:
    """Return the paths and names that a change touches."""
    return (change.path, change.to) if isinstance(change, Move) else (change.path,)


def _format_receipt(ends: Ends) -> bytes:
    return json.dumps({name: position.offset for name, position in ends.items()}).encode()


def _read_receipt(data: bytes) -> Ends:
    return {name: LogPosition(offset) for name, offset in json.loads(data).items()}


def _needs_version(change: Change) -> bool:
    """Return whether the version of a whole log matters, which takes reading all of it."""
    return isinstance(change, Move | Remove | Erase) and is_log(change.path) and change.expected is not None


def _pairs(rows: list[Row]) -> list[tuple[str, str]]:
    return [(name, version) for name, version in rows]


_READS = {
    # First, since its lock makes other commits of this root wait until this one has ended.
    "root": "UPDATE kept.roots SET version = version + 1 WHERE id = %(root)s"
    " RETURNING version, (SELECT max(number) FROM kept.migrations)",
    "lease": "SELECT number FROM kept.leases"
    " WHERE root = %(root)s AND name = %(lease)s AND expires > clock_timestamp()",
    "receipt": "SELECT receipt FROM kept.receipts WHERE root = %(root)s AND commit_id = %(commit_id)s",
    "documents": "SELECT path, version FROM kept.documents"
    " WHERE root = %(root)s AND path = ANY(%(paths)s::text[]) AND data IS NOT NULL",
    "logs": "SELECT name, first, stop, generation, is_removed FROM kept.logs"
    " WHERE root = %(root)s AND name = ANY(%(names)s::text[])",
    "log_versions": "SELECT l.name, encode(sha256(coalesce(string_agg(n.data || '\\x0a'::bytea, ''::bytea"
    " ORDER BY n.start), ''::bytea)), 'hex') FROM kept.logs l LEFT JOIN kept.log_lines n ON n.log = l.id"
    " WHERE l.root = %(root)s AND l.name = ANY(%(whole)s::text[]) GROUP BY l.name",
    "lines": "SELECT l.name, n.start, n.data FROM unnest(%(blanked)s::text[], %(starts)s::bigint[]) AS b (name, start)"
    " JOIN kept.logs l ON l.root = %(root)s AND l.name = b.name JOIN kept.log_lines n ON n.log = l.id"
    " AND n.start = b.start",
}

_WRITE = (
    "INSERT INTO kept.documents VALUES (%(root)s, %(path)s, %(data)s, %(version)s, %(number)s, %(modified)s)"
    " ON CONFLICT (root, path) DO UPDATE SET data = excluded.data, version = excluded.version,"
    " changed = excluded.changed, modified_ns = excluded.modified_ns"
)
_MOVE = (
    "INSERT INTO kept.documents SELECT root, %(to)s, data, version, %(number)s, modified_ns FROM kept.documents"
    " WHERE root = %(root)s AND path = %(path)s"
    " ON CONFLICT (root, path) DO UPDATE SET data = excluded.data, version = excluded.version,"
    " changed = excluded.changed, modified_ns = excluded.modified_ns"
)
_REMOVE = (
    "UPDATE kept.documents SET data = NULL, version = '', changed = %(number)s"
    " WHERE root = %(root)s AND path = %(path)s"
)
_LOG = (
    "INSERT INTO kept.logs (root, name, first, stop, generation, is_removed, changed, modified_ns) VALUES (%(root)s,"
    " %(name)s, %(first)s, %(stop)s, %(generation)s, %(is_removed)s, %(number)s, %(modified)s)"
    " ON CONFLICT (root, name) DO UPDATE SET first = excluded.first, stop = excluded.stop,"
    " generation = excluded.generation, is_removed = excluded.is_removed, changed = excluded.changed,"
    " modified_ns = excluded.modified_ns"
)
_THE_LOG = "(SELECT id FROM kept.logs WHERE root = %(root)s AND name = %(name)s)"
_ADD_LINES = (
    f"INSERT INTO kept.log_lines SELECT {_THE_LOG}, start, data"
    " FROM unnest(%(starts)s::bigint[], %(lines)s::bytea[]) AS t (start, data)"
)
_DROP_LINES = f"DELETE FROM kept.log_lines WHERE log = {_THE_LOG}"
_DROP_LOG = "DELETE FROM kept.logs WHERE root = %(root)s AND name = %(name)s"
_RENAME_LOG = "UPDATE kept.logs SET name = %(to)s WHERE root = %(root)s AND name = %(name)s"
_SET_LINE = f"UPDATE kept.log_lines SET data = %(data)s WHERE log = {_THE_LOG} AND start = %(start)s"


class _Writing:
    """The statements of a commit, and the ends of its logs. Changes nothing by itself."""

    def __init__(self, before: _Before, number: int, now_ns: int) -> None:
        self._before, self._number, self._now_ns = before, number, now_ns
        self.statements: list[tuple[str, dict[str, Any]]] = []
        self.ends: dict[str, LogPosition] = {}
        self._blanked: set[str] = set()

    def add(self, change: Change) -> None:
        """Add a change. Raise StorageConflict or DocumentNotFound if it does not fit what is there."""
        match change:
            case Write(path, data, expected):
                self._check(path, expected)
                version = version_of(data)
                self._run(_WRITE, path=path, data=data, version=version, modified=change.modified_ns or self._now_ns)
            case Move(path, to, expected):
                self._move(path, to, expected)
            case Remove(path, expected) | Erase(path, expected):
                self._check(path, expected)
                self._remove(path)
            case Append(name, lines, expected_end) | Rewrite(name, lines, expected_end):
                self._extend_log(name, lines, expected_end, is_rewrite=isinstance(change, Rewrite))
            case Blank(name, position, line):
                self._blank(name, position.offset, line)

    def _check(self, path: str, expected: str | None) -> str:
        """Return the version of a document or a log. Raise StorageConflict if another one is expected."""
        version = self._before.version(path)
        if expected is not None and version != expected:
            raise version_conflict(path, version, expected)
        return version

    def _move(self, path: str, to: str, expected: str | None) -> None:
        if not self._check(path, expected):
            raise DocumentNotFound(f"{printable_line(path)}: there is no such document.")
        self._check(to, ABSENT)
        if is_log(path):
            log, replaced = self._before.log(path), self._before.log(to)
            self._run(_DROP_LOG, name=to)
            self._run(_RENAME_LOG, name=path, to=to)
            self._set_log(_Log(to, log.first, log.stop, replaced.generation, is_removed=False))
            self._set_log(_Log(path, generation=log.generation + 1))
        else:
            self._run(_MOVE, path=path, to=to)
            self._run(_REMOVE, path=path)

    def _remove(self, path: str) -> None:
        if not is_log(path):
            self._run(_REMOVE, path=path)
        elif self._before.version(path):
            self._run(_DROP_LINES, name=path)
            self._set_log(_Log(path, generation=self._before.log(path).generation + 1))

    def _extend_log(
        self, name: str, lines: Sequence[bytes], expected_end: LogPosition | None, *, is_rewrite: bool
    ) -> None:
        log = self._before.log(name)
        if expected_end is not None and expected_end.offset != log.stop:
            raise StorageConflict(f"{printable_line(name)}: it has other lines at its end.")
        starts, stop = [], log.stop
        for line in lines:
            starts.append(stop)
            stop += len(line) + 1
        first, generation = (log.stop, log.generation + 1) if is_rewrite else (log.first, log.generation)
        self._set_log(_Log(name, first, stop, generation, is_removed=False))
        if is_rewrite:
            self._run(_DROP_LINES, name=name)
        self._run(_ADD_LINES, name=name, starts=starts, lines=list(lines))
        self.ends[name] = LogPosition(stop)

    def _blank(self, name: str, start: int, line: bytes) -> None:
        old = self._before.lines.get((name, start))
        if old is None:
            raise StorageConflict(f"{printable_line(name)}: no line begins at this position.")
        self._run(_SET_LINE, name=name, start=start, data=check_blank(name, old, line))
        if name not in self._blanked:
            self._blanked.add(name)
            log = self._before.log(name)
            self._set_log(_Log(name, log.first, log.stop, log.generation + 1, is_removed=False))

    def _set_log(self, log: _Log) -> None:
        values = {"first": log.first, "stop": log.stop, "generation": log.generation, "is_removed": log.is_removed}
        self._run(_LOG, name=log.name, modified=self._now_ns, **values)

    def _run(self, text: str, **values: Any) -> None:
        self.statements.append((text, values))

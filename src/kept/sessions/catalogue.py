"""The catalogue: one row per transcript of an agent, derived from the transcripts and updated when it is used.

An unchanged transcript is not opened. One that has grown is read from where the catalogue stopped; one that was
changed in any other way is read from the beginning. A damaged catalogue is replaced and filled from the transcripts.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw

from kept.base.limits import int64, is_utf8, utf8_safe
from kept.base.records import Problem
from kept.base.sqlite import (
    BUSY_TIMEOUT_MS,
    FileConnection,
    ProcessLock,
    connect,
    discard_if_damaged,
    file_number,
    forget_connection,
    immediate,
    migrate,
    retry_damaged,
    translated,
)
from kept.errors import (
    SessionError,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreUnavailable,
    UsageError,
    WorkspaceError,
)
from kept.sessions.record import FIELDS, RecordBuilder, SessionRecord
from kept.sessions.transcript import Position, Transcript, Transcripts

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())  # a command reports it itself; without a handler Python would print it too

_MIGRATIONS = os.path.join(os.path.dirname(__file__), "migrations")
_NOUN = "session catalogue"
_REPAIR_WAIT_S = 30.0
"""Longest wait for another process that rebuilds the catalogue."""
_MAX_PROBLEMS = 100
_MAX_DAMAGED_NAMED = 10

T = TypeVar("T")


class Catalogue:
    """The catalogue of one agent. Safe between threads and processes."""

    def __init__(self, path: str, transcripts: Transcripts) -> None:
        self.path = path
        self.transcripts = transcripts
        self._lock = ProcessLock(self._drop_parent)
        self._is_closed = False
        self._db: FileConnection | None = None
        self._is_complete = False
        """Whether every transcript was compared with its row since the file was opened."""
        self._problems: list[Problem] = []

    def _drop_parent(self) -> None:
        """In a forked child, drop the connection: it is the parent's."""
        if self._db is not None:
            forget_connection(self._db)
        self._db, self._is_complete = None, False

    def close(self) -> None:
        """Close the file. Every later use raises UsageError."""
        self._is_closed = True
        self._disconnect()

    def _disconnect(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db, self._is_complete = None, False

    # queries

    def recent(self, *, channel: str | None = None, limit: int | None = None) -> list[SessionRecord]:
        """Return the sessions, most recently used first."""
        where, values = ("WHERE channel = ?", [channel]) if channel else ("", [])
        return self._select(
            f"{where} ORDER BY updated_ms DESC, log DESC LIMIT ?", [*values, -1 if limit is None else limit]
        )

    def find(self, session_id: str) -> SessionRecord | None:
        """Return a session by its id, the one used last if a copy of its transcript has it too."""
        return next(iter(self._select("WHERE id = ? ORDER BY updated_ms DESC LIMIT 1", [session_id])), None)

    def find_by_prefix(self, prefix: str) -> list[SessionRecord]:
        return self._select("WHERE substr(id, 1, ?) = ? ORDER BY id", [len(prefix), prefix])

    def find_newest(self, key: str) -> SessionRecord | None:
        """Return the last session of a conversation, ended or not.

        A session that has ended is followed to its successor, which may look older if the clock was set back.
        """
        order = "WHERE key = ? ORDER BY created_ms DESC, ended_ms IS NOT NULL LIMIT 1"
        newest = next(iter(self._select(order, [key])), None)
        seen = set()
        while newest is not None and newest.ended_ms is not None and newest.successor and newest.id not in seen:
            seen.add(newest.id)
            newest = self.find(newest.successor) or newest
        return newest

    def channels(self) -> list[str]:
        query = "SELECT DISTINCT channel FROM sessions WHERE channel <> '' ORDER BY channel"
        return self.run(lambda db: [channel for (channel,) in db.execute(query)])

    def _select(self, rest: str, values: Sequence[Any]) -> list[SessionRecord]:
        return self.run(lambda db: _load_rows(db, rest, values))

    # bringing it up to date

    def refresh(self) -> None:
        """Compare every transcript with its row, and read what is new."""
        # The rows first: the transcript that another process creates meanwhile must not look deleted.
        known = dict(self.run(lambda db: list(db.execute("SELECT log, log_state FROM sessions"))))
        states = self._scan()
        for log, state in states.items():
            if known.get(log) != state:
                self.catch_up(log)
        if deleted := [log for log in known if log not in states]:
            self.run(lambda db: _delete_rows(db, deleted))
        self._is_complete = True

    def complete(self) -> None:
        """Refresh, unless this was done since the file was opened."""
        if not self._is_complete or not self._is_current():  # a new catalogue has no rows yet
            self.refresh()

    def catch_up(self, log: str) -> None:
        """Read what is new in a transcript. One that cannot be read is reported, and the others are still listed."""
        try:
            self.read(log)
        except (SessionError, WorkspaceError) as exc:
            self.report(_name_of(log), exc.message)

    def read(
        self, log: str, row: SessionRecord | None = None, *, has_only_grown: bool | None = None
    ) -> SessionRecord | None:
        """Return the record of a transcript as that is now, or None if it is gone.

        The caller may know its row, and that it has only grown since.
        """
        transcript = Transcript(self.transcripts.storage, log)
        info = self.transcripts.storage.logs.find(log)
        if info is None:
            self.forget(log)
            return None
        row = row or next(iter(self._select("WHERE log = ?", [log])), None)
        if row is not None and row.log_state == info.state:
            return row
        if row is not None and has_only_grown is None:  # a change that did not make it longer was not an append
            has_only_grown = info.size > row.size and transcript.has_only_grown(row.read_end, info)
        builder = RecordBuilder(row) if row is not None and has_only_grown else RecordBuilder.begin(log)
        damaged = []
        for line in transcript.iter_known(Position(builder.row.offset, builder.row.lines)):
            if damage := builder.add(line):
                damaged.append(f"{damage}; the rest is read")
        for reason in damaged[:_MAX_DAMAGED_NAMED]:
            self.report(_name_of(log), reason)
        record = builder.finish(info)
        try:
            self.run(lambda db: _save_row(db, record))
        except StoreError as exc:  # the record is right, and the next reader makes it again
            logger.warning("session %s: the catalogue could not be brought up to date (%s)", record.id, exc.code)
        return record

    def forget(self, log: str) -> None:
        self.run(lambda db: _delete_rows(db, [log]))

    def _scan(self) -> dict[str, str]:
        """Return the states of the transcripts. One whose name is not UTF-8 cannot have a row and is reported."""
        states = {}
        for info in self.transcripts.list():
            if is_utf8(info.name):
                states[info.name] = info.state
            else:
                self.report(utf8_safe(_name_of(info.name)), "its name is not valid UTF-8")
        return states

    # problems

    def report(self, file: str, reason: str) -> None:
        with self._lock:
            self._problems = [*self._problems[-_MAX_PROBLEMS:], Problem(file, reason)]

    def take_problems(self) -> tuple[Problem, ...]:
        """Return the problems since the last call."""
        with self._lock:
            problems, self._problems = tuple(self._problems), []
        return problems

    # the file

    def run(self, action: Callable[[apsw.Connection], T]) -> T:
        """Run an action on the database. If that turns out to be damaged, repair it and run the action again."""
        if self._is_closed:
            raise UsageError("The sessions are closed.", hint="Open them again with SessionStore.open().")
        with self._lock:
            return retry_damaged(lambda: self._run(action), self._disconnect, self._replace)

    def _run(self, action: Callable[[apsw.Connection], T]) -> T:
        if self._db is None or not self._is_current():
            self._disconnect()
            self._db = self._connect()
        try:
            with translated(self.path, noun=_NOUN):
                return action(self._db)
        except (json.JSONDecodeError, TypeError) as exc:  # damage that no checksum of SQLite has noticed
            raise StoreDamaged(f"{self.path}: the {_NOUN} is damaged ({exc}).") from exc

    def _is_current(self) -> bool:
        return self._db is not None and self._db.number == file_number(self.path)

    def _connect(self) -> FileConnection:
        """Connect to the file. If it cannot be written, use a catalogue in memory, so that sessions can be read."""
        try:
            db = connect(self.path, _MIGRATIONS, noun=_NOUN)
        except (StoreUnavailable, StoreFull) as exc:
            if not os.path.isdir(os.path.dirname(self.path)):
                raise
            reason = f"cannot be used, so every transcript is read: {exc.message}"
            self.report(os.path.basename(self.path), reason)
            db = FileConnection(":memory:")
            migrate(db, _MIGRATIONS)
            db.number = file_number(self.path)
            return db
        db.set_busy_timeout(BUSY_TIMEOUT_MS)
        return db

    def _replace(self, damage: StoreDamaged) -> None:
        """Delete the damaged file, and read every transcript into a new one."""
        wait_s, purpose = _REPAIR_WAIT_S, "rebuilding the session catalogue"
        if discard_if_damaged(self.path, self._db, lambda: self._run(_load_rows), wait_s=wait_s, purpose=purpose):
            logger.warning("%s It has been rebuilt from the transcripts.", damage.message)
            self.report(os.path.basename(self.path), "was damaged and has been rebuilt from the transcripts")
        self._disconnect()
        for log in self._scan():  # the new file is empty, and the action that is repeated needs the rows
            self.catch_up(log)


def _name_of(log: str) -> str:
    return log.rpartition("/")[2]


_SELECT = f"SELECT {', '.join(FIELDS)} FROM sessions"
_SAVE = f"REPLACE INTO sessions ({', '.join(FIELDS)}) VALUES ({', '.join('?' * len(FIELDS))})"
_JSON_FIELDS = ("state", "metadata")


def _load_rows(db: apsw.Connection, rest: str = "", values: Sequence[Any] = ()) -> list[SessionRecord]:
    """Return the records that the rest of a query selects."""
    records = []
    for row in db.execute(f"{_SELECT} {rest}", [_storable(value) for value in values]):
        fields: dict[str, Any] = dict(zip(FIELDS, row, strict=True))
        records.append(SessionRecord(**{**fields, **{name: json.loads(fields[name]) for name in _JSON_FIELDS}}))
    return records


def _save_row(db: apsw.Connection, record: SessionRecord) -> None:
    """Save a row. If another process has read further meanwhile, the next refresh does so again."""
    with immediate(db):
        db.execute(_SAVE, [_storable(getattr(record, name)) for name in FIELDS])


def _delete_rows(db: apsw.Connection, logs: Sequence[str]) -> None:
    with immediate(db):
        db.executemany("DELETE FROM sessions WHERE log = ?", [(log,) for log in logs])


def _storable(value: Any) -> Any:
    """Return a value that SQLite can store. Half of a surrogate pair, which JSON allows, is written as an escape;
    keys have it escaped already."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int):
        return int64(value)
    return json.dumps(value) if isinstance(value, dict) else value

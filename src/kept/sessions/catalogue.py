"""The catalogue: one row per transcript of an agent, derived from the transcripts and updated when it is used.

An unchanged transcript is not opened. One that has grown is read from where the catalogue stopped; one that was
changed in any other way is read from the beginning. A damaged catalogue is replaced and filled from the transcripts.
"""

from __future__ import annotations

import json
import logging
import os
import time
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
    connect_in_memory,
    discard_if_damaged,
    file_number,
    forget_connection,
    immediate,
    retry_damaged,
    translated,
)
from kept.errors import (
    KeptError,
    SessionError,
    StoreDamaged,
    StoreFull,
    StoreUnavailable,
    TranscriptUnreadable,
    TranscriptUnwritable,
    UsageError,
    WorkspaceError,
)
from kept.sessions.record import FIELDS, RecordBuilder, SessionRecord
from kept.sessions.transcript import (
    Damage,
    FileState,
    ReadEnd,
    Transcript,
    has_only_grown,
)
from kept.sessions.transcript_paths import iter_transcripts

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())  # a command reports it itself; without a handler Python would print it too

_MIGRATIONS = os.path.join(os.path.dirname(__file__), "migrations")
_NOUN = "session catalogue"
_REPAIR_WAIT_S = 30.0
"""Longest wait for another process that rebuilds the catalogue."""
_MAX_PROBLEMS = 100
_MAX_DAMAGED_NAMED = 10
_TICK_NS = 50_000_000
"""Longer than a tick of the clock that file systems stamp changes with."""

T = TypeVar("T")


class Catalogue:
    """The catalogue of one agent. Safe between threads and processes."""

    def __init__(self, path: str, folder: str) -> None:
        self.path = path
        self.folder = folder
        self._lock = ProcessLock(self._drop_parent)
        self._is_closed = False
        self._db: FileConnection | None = None
        self._folder_state: FileState | None = None
        """State of the folder when every transcript in it was last compared with its row."""
        self._problems: list[Problem] = []

    def _drop_parent(self) -> None:
        """In a forked child, drop the connection: it is the parent's."""
        if self._db is not None:
            forget_connection(self._db)
        self._db, self._folder_state = None, None

    def close(self) -> None:
        """Close the file. Every later use raises UsageError."""
        self._is_closed = True
        self._disconnect()

    def _disconnect(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db, self._folder_state = None, None

    # queries

    def recent(self, *, channel: str | None = None, limit: int | None = None) -> list[SessionRecord]:
        """Return the sessions, most recently used first."""
        where, values = ("WHERE channel = ?", [channel]) if channel else ("", [])
        return self._select(
            f"{where} ORDER BY updated_ms DESC, file DESC LIMIT ?", [*values, -1 if limit is None else limit]
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
        while newest is not None and newest.ended and newest.successor and newest.id not in seen:
            seen.add(newest.id)
            newest = self.find(newest.successor) or newest
        return newest

    def channels(self) -> list[str]:
        query = "SELECT DISTINCT channel FROM sessions WHERE channel <> '' ORDER BY channel"
        return self.run(lambda db: [channel for (channel,) in db.execute(query)])

    def _select(self, rest: str, values: Sequence[Any]) -> list[SessionRecord]:
        return self.run(lambda db: load_rows(db, self.folder, rest, values))

    # bringing it up to date

    def refresh(self) -> None:
        """Compare every transcript with its row, by name, size and time, and read what is new."""
        folder_state = FileState.of(self.folder)
        # The rows first: the transcript that another process creates meanwhile must not look deleted.
        rows = self.run(lambda db: list(db.execute("SELECT file, inode, size, mtime_ns FROM sessions")))
        on_disk = self._scan()
        known = {file: FileState(inode, size, mtime_ns) for file, inode, size, mtime_ns in rows}
        for file, state in on_disk.items():
            if known.get(file) != state:
                self.catch_up(file)
        deleted = [file for file in known if file not in on_disk]
        if deleted:
            self.run(lambda db: delete_rows(db, deleted))
        # A transcript that is created within the same tick would not change the folder's time. So a folder that
        # changed a moment ago is compared again next time.
        latest_ns = time.time_ns() - _TICK_NS
        is_older = folder_state is not None and folder_state.mtime_ns < latest_ns
        self._folder_state = folder_state if is_older else None

    def refresh_names(self) -> None:
        """Refresh if transcripts were created or deleted since the last refresh, as the folder's own time tells."""
        if not self._is_current() or not self._is_folder_unchanged():  # a new catalogue has no rows yet
            self.refresh()

    def _is_folder_unchanged(self) -> bool:
        return self._folder_state is not None and self._folder_state == FileState.of(self.folder)

    def refresh_one(self, path: str) -> SessionRecord | None:
        """Return the record of a transcript as that is now, or None if it is gone."""
        file = os.path.basename(path)
        self._read(file)
        return next(iter(self._select("WHERE file = ?", [file])), None)

    def catch_up(self, file: str) -> None:
        """Read what is new in a transcript. One that cannot be read is reported, and the others are still listed."""
        try:
            self._read(file)
        except (SessionError, OSError) as exc:
            self.report(file, exc.message if isinstance(exc, KeptError) else str(exc.strerror))

    def _read(self, file: str) -> None:
        path = os.path.join(self.folder, file)
        transcript = Transcript(path)
        state = FileState.of(path)
        if state is None:
            self.forget(file)
            return
        row = next(iter(self._select("WHERE file = ?", [file])), None)
        if row is not None and FileState(row.inode, row.size, row.mtime_ns) == state:
            return
        self._repair(transcript)
        state = FileState.of(path) or state
        # A change that did not make the transcript longer was not an append.
        can_resume = (
            row is not None
            and state.size > row.size > 0
            and has_only_grown(transcript, ReadEnd(row.inode, row.size, row.tail_hash), state)
        )
        builder = RecordBuilder(row) if row is not None and can_resume else RecordBuilder.begin(self.folder, file)
        damaged: list[str] = []
        for line in transcript.iter_lines(builder.finish().end, stop=state.size):
            builder.add(line)
            if isinstance(line.content, Damage):
                damaged.append(f"{line.content}; the rest is read")
        for reason in damaged[:_MAX_DAMAGED_NAMED]:
            self.report(file, reason)
        builder.row.inode, builder.row.mtime_ns = state.inode, state.mtime_ns
        builder.row.tail_hash = transcript.tail_hash(builder.row.size)
        self.run(lambda db: save_row(db, builder.finish()))

    def _repair(self, transcript: Transcript) -> None:
        """Repair a torn end. If that fails, as on a read-only disk, the whole lines are still read."""
        file = os.path.basename(transcript.path)
        try:
            if torn := transcript.repair():
                self.report(file, torn)
        except (TranscriptUnwritable, WorkspaceError) as exc:
            self.report(file, f"its last line is torn and could not be repaired: {exc.message}")

    def forget(self, file: str) -> None:
        self.run(lambda db: delete_rows(db, [file]))

    def _scan(self) -> dict[str, FileState]:
        """Return the transcripts by name. One whose name is not UTF-8 cannot have a row and is reported."""
        states = {}
        try:
            for entry in iter_transcripts(self.folder):
                if is_utf8(entry.name):
                    states[entry.name] = FileState.from_stat(entry.stat(follow_symlinks=False))
                else:
                    self.report(utf8_safe(entry.name), "its name is not valid UTF-8")
        except FileNotFoundError:
            pass
        except OSError as exc:
            raise TranscriptUnreadable(f"{self.folder}: cannot be read ({exc.strerror}).") from exc
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
            db = connect_in_memory(_MIGRATIONS)
            db.number = file_number(self.path)
            return db
        db.set_busy_timeout(BUSY_TIMEOUT_MS)
        return db

    def _replace(self, damage: StoreDamaged) -> None:
        """Delete the damaged file, and read every transcript into a new one."""
        wait_s, purpose = _REPAIR_WAIT_S, "rebuilding the session catalogue"
        if discard_if_damaged(self.path, self._db, lambda: self._run(_check), wait_s=wait_s, purpose=purpose):
            log.warning("%s It has been rebuilt from the transcripts.", damage.message)
            self.report(os.path.basename(self.path), "was damaged and has been rebuilt from the transcripts")
        self._disconnect()
        for file in self._scan():  # the new file is empty, and the action that is repeated needs the rows
            self.catch_up(file)


def _check(db: apsw.Connection) -> None:
    load_rows(db, "", "", ())


_SELECT = f"SELECT {', '.join(FIELDS)} FROM sessions"
_SAVE = f"REPLACE INTO sessions ({', '.join(FIELDS)}) VALUES ({', '.join('?' * len(FIELDS))})"
_JSON_FIELDS = ("state", "metadata")


def load_rows(db: apsw.Connection, folder: str, rest: str, values: Sequence[Any]) -> list[SessionRecord]:
    """Return the records that the rest of a query selects."""
    records = []
    for row in db.execute(f"{_SELECT} {rest}", [storable(value) for value in values]):
        fields: dict[str, Any] = dict(zip(FIELDS, row, strict=True))
        records.append(SessionRecord(folder, **{**fields, **{name: json.loads(fields[name]) for name in _JSON_FIELDS}}))
    return records


def save_row(db: apsw.Connection, record: SessionRecord) -> None:
    """Save a row. If another process has read further meanwhile, the next refresh does so again."""
    with immediate(db):
        db.execute(_SAVE, [storable(getattr(record, name)) for name in FIELDS])


def delete_rows(db: apsw.Connection, files: Sequence[str]) -> None:
    with immediate(db):
        db.executemany("DELETE FROM sessions WHERE file = ?", [(file,) for file in files])


def storable(value: Any) -> Any:
    """Return a value that SQLite can store. Half of a surrogate pair, which JSON allows, is written as an escape;
    keys have it escaped already."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int):
        return int64(value)
    return json.dumps(value) if isinstance(value, dict) else value

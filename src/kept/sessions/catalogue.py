"""The catalogue of an agent's sessions: derived from the transcripts, rebuilt from them, never behind when it is asked.

A transcript that has grown since is read from where the catalogue stopped; one that was changed in another way is read
from the start; one that is as it was is not opened at all.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import apsw

from kept.clock import SystemClock
from kept.database_files import file_number, replace_damaged
from kept.errors import (
    KeptError,
    SessionError,
    StoreDamaged,
    StoreFull,
    StoreUnavailable,
    TranscriptUnreadable,
    TranscriptUnwritable,
    WorkspaceError,
)
from kept.forking import DatabaseLock, forget, register
from kept.ledger import open_heal_ledger
from kept.limits import int64, is_storable
from kept.lock import locked
from kept.records import Heal, Problem
from kept.sessions.entries import Entry
from kept.sessions.record import COLUMNS, RecordBuilder, SessionRecord
from kept.sessions.transcript import FileState, Position, Transcript, TranscriptLine, faults_of
from kept.sessions.transcript_paths import iter_transcripts
from kept.sqlite import connect, connect_in_memory, immediate, translated

HEAL_WAIT_S = 30.0

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())  # a command says it; without a handler Python would print it too

_MIGRATIONS = os.path.join(os.path.dirname(__file__), "migrations")
_NOUN = "session catalogue"
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM sessions"
_SAVE = (
    f"INSERT INTO sessions ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
    f" ON CONFLICT (file) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in COLUMNS[1:])}"
)
_JSON = ("state", "metadata")
_NOTICES_KEPT = 100
_FAULTS_NAMED = 10
_TICK_NS = 50_000_000

T = TypeVar("T")


class Catalogue:
    """Safe between threads and processes."""

    def __init__(self, path: str, folder: str) -> None:
        self.path = path
        self.folder = folder
        self._lock = DatabaseLock()
        self._db: apsw.Connection | None = None
        self._opened: tuple[int, int] | None = None
        self._folder_state: FileState | None = None
        self._problems: list[Problem] = []
        register(self)

    def after_fork(self) -> None:
        """In a forked child: the connection is the parent's."""
        if self._db is not None:
            forget(self._db)
        self._db, self._folder_state = None, None

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db, self._folder_state = None, None

    # asking

    def newest(self, *, channel: str | None = None, limit: int | None = None) -> list[SessionRecord]:
        """The last used first."""
        where, values = ("WHERE channel = ?", [channel]) if channel else ("", [])
        return self._records(
            f"{where} ORDER BY updated_ms DESC, file DESC LIMIT ?", [*values, -1 if limit is None else limit]
        )

    def find(self, session_id: str) -> SessionRecord | None:
        return next(iter(self._records("WHERE id = ? ORDER BY updated_ms DESC LIMIT 1", [session_id])), None)

    def locate(self, session_id: str) -> tuple[str, int] | None:
        """The transcript of a session and its version: all that adding to it needs to know."""
        query = "SELECT file, version FROM sessions WHERE id = ? ORDER BY updated_ms DESC LIMIT 1"
        return self._healing(lambda db: db.execute(query, (_storable(session_id),)).fetchone())

    def find_by_prefix(self, prefix: str, limit: int) -> list[SessionRecord]:
        return self._records("WHERE substr(id, 1, ?) = ? ORDER BY id LIMIT ?", [len(prefix), prefix, limit])

    def find_newest(self, key: str) -> SessionRecord | None:
        """The last session of a conversation, ended or not. One that has ended is followed to its successor, which
        may seem older where the clock was set back."""
        order = "WHERE key = ? ORDER BY created_ms DESC, ended_ms IS NOT NULL LIMIT 1"
        newest = next(iter(self._records(order, [key])), None)
        seen = set()
        while newest is not None and newest.ended and newest.successor and newest.id not in seen:
            seen.add(newest.id)
            newest = self.find(newest.successor) or newest
        return newest

    def _records(self, rest: str, values: Sequence[Any]) -> list[SessionRecord]:
        def ask(db: apsw.Connection) -> list[SessionRecord]:
            found = db.execute(f"{_SELECT} {rest}", [_storable(value) for value in values])
            return [_tally(row).record(self.folder) for row in found]

        return self._healing(ask)

    # keeping up

    def refresh(self) -> None:
        """Compares every transcript with its row, by name, size and time, and reads what is new."""
        folder_state = FileState.of(self.folder)
        on_disk = self._scan()
        known = self._healing(_known)
        for file, state in on_disk.items():
            if known.get(file) != state:
                self._read_guarded(file)
        gone = [file for file in known if file not in on_disk]
        if gone:
            self._healing(lambda db: _forget(db, gone))
        # A name that comes in the same tick of the clock would not change the folder's time.
        self._folder_state = folder_state if folder_state and _is_settled(folder_state) else None

    def refresh_names(self) -> None:
        """Takes in transcripts that were made or removed since the last look, which the folder's own time tells."""
        if self._is_new_file() or self._folder_state != FileState.of(self.folder) or self._folder_state is None:
            self.refresh()

    def refresh_one(self, record: SessionRecord) -> SessionRecord:
        """The record as the transcript now has it."""
        file = os.path.basename(record.transcript_path)
        self._read(file)
        return self.get(file) or record

    def read_new(self, file: str) -> SessionRecord | None:
        """The record of a transcript that was just made."""
        self._read(file)
        return self.get(file)

    def get(self, file: str) -> SessionRecord | None:
        return next(iter(self._records("WHERE file = ?", [file])), None)

    def _read_guarded(self, file: str) -> None:
        """One transcript that cannot be read does not keep the others from being listed."""
        try:
            self._read(file)
        except (SessionError, OSError) as exc:
            reason = exc.message if isinstance(exc, KeptError) else str(exc.strerror)
            self.say(file, reason)

    def _read(self, file: str) -> None:
        path = os.path.join(self.folder, file)
        transcript = Transcript(path)
        state = FileState.of(path)
        if state is None:
            self._healing(lambda db: _forget(db, [file]))
            return
        row = self._healing(lambda db: _row(db, file))
        if row is not None and _state_of(row) == state:
            return
        self._repair(transcript)
        state = FileState.of(path) or state
        tally = row if row is not None and _has_only_grown(row, state, transcript) else RecordBuilder.begin(file)
        faults: list[str] = []
        for line in transcript.iter_lines(Position(tally.size, tally.lines), stop=state.size):
            tally.add(line)
            if len(faults) < _FAULTS_NAMED:
                faults += (f"line {line.number}: {reason}" for reason in faults_of(line))
        for fault in faults:
            self.say(file, fault)
        tally.inode, tally.mtime_ns, tally.seam = state.inode, state.mtime_ns, transcript.seam(tally.size)
        self._healing(lambda db: _save(db, tally, expected=row))

    def _repair(self, transcript: Transcript) -> None:
        """A torn end that cannot be mended, because the file is read-only, does not keep the rest from being read."""
        file = os.path.basename(transcript.path)
        try:
            if torn := transcript.repair():
                self.say(file, str(torn))
        except (TranscriptUnwritable, WorkspaceError) as exc:
            self.say(file, f"its last line is torn and could not be mended: {exc.message}")

    def advance(self, file: str, entries: Sequence[Entry], before: int, state: FileState) -> None:
        """Adds what was just written, in one short transaction. The caller holds the transcript's lock."""

        seam = Transcript(os.path.join(self.folder, file)).seam(state.size)

        def add(db: apsw.Connection) -> bool:
            with immediate(db):
                tally = _row(db, file)
                if tally is None or tally.size != before or tally.inode != state.inode:
                    return False
                for number, entry in enumerate(entries, tally.lines + 1):
                    tally.add(TranscriptLine(number, before, state.size, entry))
                tally.mtime_ns, tally.seam = state.mtime_ns, seam
                db.execute(_SAVE, _values(tally))
            return True

        if not self._healing(add):
            self._read(file)

    def forget(self, file: str) -> None:
        self._healing(lambda db: _forget(db, [file]))

    # what happened meanwhile

    def say(self, file: str, reason: str) -> None:
        with self._lock:
            self._problems = [*self._problems[-_NOTICES_KEPT:], Problem(file, reason)]

    def take_problems(self) -> tuple[Problem, ...]:
        with self._lock:
            problems, self._problems = tuple(self._problems), []
        return problems

    # the file

    def _is_new_file(self) -> bool:
        return self._db is None or self._opened != file_number(self.path)

    def _healing(self, action: Callable[[apsw.Connection], T]) -> T:
        with self._lock:
            try:
                return self._run(action)
            except StoreDamaged as damage:
                self._heal(damage)
            try:
                return self._run(action)
            except StoreDamaged as damage:  # a fresh connection has met it too
                self._heal(damage, certain=True)
                return self._run(action)

    def _run(self, action: Callable[[apsw.Connection], T]) -> T:
        if self._is_new_file():
            self.close()
            self._db = self._connect()
            self._opened = file_number(self.path)
        assert self._db is not None
        with _json_damage(self.path), translated(self.path, noun=_NOUN):
            return action(self._db)

    def _connect(self) -> apsw.Connection:
        """On a disk that cannot be written to, sessions can still be read: the catalogue is then made each time."""
        try:
            return connect(self.path, _MIGRATIONS, noun=_NOUN)
        except (StoreUnavailable, StoreFull) as exc:
            if not os.path.isdir(self.folder):
                raise
            self.say(os.path.basename(self.path), f"cannot be used, so every transcript is read: {exc.message}")
            return connect_in_memory(_MIGRATIONS)

    def _heal(self, damage: StoreDamaged, *, certain: bool = False) -> None:
        """Replace the file, unless a fresh connection finds it sound: then the one that saw the damage was stale."""
        opened = self._opened if self._db is not None else None
        self.close()
        with locked(f"{self.path}.lock", wait_s=HEAL_WAIT_S, purpose="rebuilding the catalogue of sessions"):
            certain = certain and opened is not None and file_number(self.path) == opened
            if certain or not self._is_sound():
                replace_damaged(self.path, None)
                self._report_heal(damage)
        self._fill()

    def _report_heal(self, damage: StoreDamaged) -> None:
        name = os.path.basename(self.path)
        log.warning("%s It has been rebuilt from the transcripts.", damage.message)
        self.say(name, "was damaged and has been rebuilt from the transcripts")
        ledger = open_heal_ledger(os.path.dirname(self.path), SystemClock())
        if problem := ledger.record(Heal(name, "replaced", times=1)):
            self.say(name, problem)

    def _is_sound(self) -> bool:
        try:
            db = connect(self.path, _MIGRATIONS, noun=_NOUN)
        except StoreDamaged:
            return False
        try:
            with _json_damage(self.path), translated(self.path, noun=_NOUN):
                for row in db.execute(_SELECT):
                    _tally(row)
                return bool(db.execute("PRAGMA quick_check(1)").get == "ok")
        except StoreDamaged:
            return False
        finally:
            db.close()

    def _fill(self) -> None:
        """A fresh catalogue is empty; what was being asked wants it full."""
        for file in self._scan():
            self._read_guarded(file)

    def _scan(self) -> dict[str, FileState]:
        """Return the transcripts by name. One whose name is not UTF-8 cannot have a row."""
        states = {}
        try:
            for entry in iter_transcripts(self.folder):
                if is_storable(entry.name):
                    states[entry.name] = FileState.from_stat(entry.stat(follow_symlinks=False))
                else:
                    self.say(entry.name.encode("utf-8", "replace").decode(), "its name is not valid UTF-8")
        except FileNotFoundError:
            pass
        except OSError as exc:
            raise TranscriptUnreadable(f"{self.folder}: cannot be read ({exc.strerror}).") from exc
        return states


def _is_settled(state: FileState) -> bool:
    return time.time_ns() - state.mtime_ns > _TICK_NS


def _known(db: apsw.Connection) -> dict[str, FileState]:
    rows = db.execute("SELECT file, inode, size, mtime_ns FROM sessions")
    return {file: FileState(inode, size, mtime_ns) for file, inode, size, mtime_ns in rows}


def _row(db: apsw.Connection, file: str) -> RecordBuilder | None:
    row = db.execute(f"{_SELECT} WHERE file = ?", (file,)).fetchone()
    return None if row is None else _tally(row)


def _save(db: apsw.Connection, tally: RecordBuilder, *, expected: RecordBuilder | None) -> None:
    """Unless another process has read further in the meantime."""
    with immediate(db):
        now = _row(db, tally.file)
        unchanged = now is not None and expected is not None and _state_of(now) == _state_of(expected)
        if now is None or unchanged or now.size < tally.size:
            db.execute(_SAVE, _values(tally))


def _forget(db: apsw.Connection, files: Sequence[str]) -> None:
    with immediate(db):
        db.executemany("DELETE FROM sessions WHERE file = ?", [(file,) for file in files])


def _state_of(row: RecordBuilder) -> FileState:
    return FileState(row.inode, row.size, row.mtime_ns)


def _has_only_grown(row: RecordBuilder, state: FileState, transcript: Transcript) -> bool:
    return row.inode == state.inode and state.size > row.size > 0 and transcript.seam(row.size) == row.seam


def _tally(row: Sequence[Any]) -> RecordBuilder:
    fields = dict(zip(COLUMNS, row, strict=True))
    return RecordBuilder(**{**fields, **{name: json.loads(fields[name]) for name in _JSON}})


def _values(tally: RecordBuilder) -> list[Any]:
    return [_storable(getattr(tally, name)) for name in COLUMNS]


def _storable(value: Any) -> Any:
    """Half of a surrogate pair, which JSON can hold and SQLite cannot, is spelt out. The key has it escaped anyway."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int):
        return int64(value)
    return json.dumps(value) if isinstance(value, dict) else value


@contextmanager
def _json_damage(path: str) -> Iterator[None]:
    try:
        yield
    except (json.JSONDecodeError, TypeError) as exc:
        raise StoreDamaged(f"{path}: the catalogue of sessions is damaged ({exc}).") from exc

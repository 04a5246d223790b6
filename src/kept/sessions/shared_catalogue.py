"""The sessions of all machines of a team, in its database: one row for each transcript, written by its machine.

A machine writes the rows of its own sessions as its catalogue changes, in a thread: a conversation never waits for the
database. The first time, and after each failure, all rows are compared with the catalogue, so what was missed during an
outage is made up for. Nothing here is canonical.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kept.config import Config
from kept.errors import KeptError
from kept.forking import register_forkable
from kept.host_names import host_name
from kept.machine_id import get_machine
from kept.sessions.catalogue import Catalogue
from kept.sessions.deleted import DeletedSessions
from kept.sessions.record import FIELDS, RecordBuilder, SessionRecord
from kept.sessions.session_key import SessionKey
from kept.sessions.transcript_paths import host_of_file
from kept.values import frozen

if TYPE_CHECKING:
    from kept.postgres.database import Connection, Database

log = logging.getLogger(__name__)

_PAUSE_S = 0.5
"""Rows of a lively conversation are written at most this often."""
_LONGEST_PAUSE_S = 30.0
_STOP_WAIT_S = 10.0
_SAVE = (
    "INSERT INTO session_records"
    " (agent, machine, file, host, session_id, channel, updated_ms, stamp, is_deleted, record)"
    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (agent, machine, file) DO UPDATE SET"
    " host = excluded.host, session_id = excluded.session_id, channel = excluded.channel,"
    " updated_ms = excluded.updated_ms, stamp = excluded.stamp, is_deleted = excluded.is_deleted,"
    " record = excluded.record"
)
_OTHERS = "SELECT host, file, is_deleted, record FROM session_records WHERE agent = %s AND machine <> %s"


@frozen
class RemoteSession:
    """A session of another machine, as its row describes it."""

    record: SessionRecord
    file: str
    is_deleted: bool


class SharedCatalogue:
    """Rows of one agent. Safe between threads."""

    def __init__(self, config: Config, catalogue: Catalogue) -> None:
        self._config = config
        self._catalogue = catalogue
        self._agent = config.agent_id
        self._host = host_name(config.agent.sync.git.host)
        self._changed: set[str] = set()
        self._is_compared = False
        """True once all rows were compared, until something fails."""
        self._has_failed = False
        self._start_thread_state()
        register_forkable(self)

    def _start_thread_state(self) -> None:
        self._lock = threading.Lock()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def after_fork(self) -> None:
        """In a forked child, forget the thread of the parent."""
        self._start_thread_state()

    # writing

    def report_change(self, file: str) -> None:
        """Have the row of a transcript written soon."""
        if host_of_file(file) or self._stop.is_set():
            return
        with self._lock:
            self._changed.add(file)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kept-session-records", daemon=True)
                self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """Write what is left, unless the database failed before: then the next process does."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_STOP_WAIT_S)
        if self._changed and not self._has_failed:
            self._try_publish()

    def _run(self) -> None:
        pause_s = _PAUSE_S
        while not self._stop.is_set():
            self._wake.wait()
            if self._stop.wait(pause_s):
                return
            self._wake.clear()
            if self._try_publish():
                pause_s = _PAUSE_S
            else:
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                self._wake.set()

    def _try_publish(self) -> bool:
        try:
            self.publish()
        except KeptError as exc:
            if not self._has_failed:
                log.warning("The list of the team's sessions could not be brought up to date (%s)", exc.code)
            self._has_failed, self._is_compared = True, False
            return False
        self._has_failed = False
        return True

    def publish(self, *, compare: bool = False) -> None:
        """Write the rows that are not as the catalogue. Raise StoreError; the next call makes up for it."""
        with self._lock:
            changed, self._changed = self._changed, set()
        try:
            with self._database().writing() as connection:
                lock_session_records(connection, self._agent)
                if compare or not self._is_compared:
                    self._compare(connection)
                    self._is_compared = True
                else:
                    self._save(connection, self._catalogue.own_rows(changed), files=changed)
        except BaseException:
            with self._lock:
                self._changed |= changed
            raise

    def _compare(self, connection: Connection) -> None:
        rows = connection.execute(
            "SELECT file, stamp FROM session_records WHERE agent = %s AND machine = %s AND host = %s",
            [self._agent, self._machine(), self._host],
        ).fetchall()
        known: dict[str, str] = dict(rows)
        own = self._catalogue.own_rows()
        changed = [row for row in own if known.get(row.file) != _stamp(row)]
        self._save(connection, changed, files={*known} - {row.file for row in own} | {row.file for row in changed})

    def _save(self, connection: Connection, rows: Sequence[RecordBuilder], *, files: Collection[str]) -> None:
        present = {row.file for row in rows}
        missing = sorted({*files} - present)
        deleted = self._deleted_ids() if missing else frozenset[str]()
        values = [self._values(row, is_deleted=False) for row in rows]
        marked = [RecordBuilder.begin(file) for file in missing]
        values += [self._values(row, is_deleted=True) for row in marked if row.id in deleted]
        purged = [row.file for row in marked if row.id not in deleted]
        with connection.cursor() as cursor:
            cursor.executemany(_SAVE, values)
        if purged:
            connection.execute(
                "DELETE FROM session_records WHERE agent = %s AND machine = %s AND file = ANY(%s)",
                [self._agent, self._machine(), purged],
            )

    def _values(self, row: RecordBuilder, *, is_deleted: bool) -> list[Any]:
        record = json.dumps({name: getattr(row, name) for name in FIELDS})
        texts = [self._agent, self._machine(), row.file, self._host, _storable(row.id), _storable(row.channel)]
        return [*texts, row.updated_ms, _stamp(row), is_deleted, record]

    def _deleted_ids(self) -> frozenset[str]:
        paths = self._config.paths
        return frozenset(session.id for session in DeletedSessions(paths.deleted_sessions, paths.sessions).all())

    def remove_all(self) -> None:
        """Remove the rows of this machine, which no longer has the agent."""
        with self._database().writing() as connection:
            key = [self._agent, self._machine()]
            connection.execute("DELETE FROM session_records WHERE agent = %s AND machine = %s", key)

    # reading

    def list_others(self, *, channel: str | None = None, limit: int | None = None) -> list[RemoteSession]:
        """Return the sessions of other machines that exist, the most recently used first."""
        where, values = (" AND channel = %s", [_storable(channel)]) if channel else ("", [])
        query = f"{_OTHERS} AND NOT is_deleted{where} ORDER BY updated_ms DESC, file LIMIT %s"
        return self._select(query, [*values, limit])

    def join_others(
        self, records: list[SessionRecord], *, channel: str | None, limit: int | None
    ) -> list[SessionRecord]:
        """Return the sessions here together with those of other machines. If that fails, report why."""
        try:
            self.publish(compare=True)
        except KeptError as exc:
            log.info("The list of the team's sessions could not be brought up to date (%s)", exc.code)
        try:
            others = self.list_others(channel=channel, limit=limit)
        except KeptError as exc:
            self._catalogue.report("sessions of other machines", f"cannot be listed: {exc.message}")
            return records
        here = {os.path.basename(record.transcript_path) for record in records}
        joined = [*records, *(session.record for session in others if session.file not in here)]
        return sorted(joined, key=lambda record: record.updated, reverse=True)[:limit]

    def describe_place(self, reference: str, key: SessionKey | None) -> str | None:
        """Return on which machine a session is that is not here, or None if none has it, or it cannot be asked."""
        try:
            sessions = self.find_others(reference, None if key is None else str(key))
        except KeptError:
            return None
        existing = [session for session in sessions if not session.is_deleted]
        for session in existing or sessions:
            name, host = session.record.id, session.record.host
            if session.is_deleted:
                return f"Session {name} was deleted on the machine {host}."
            return f"Session {name} is on the machine {host}, and its transcript is not here."
        return None

    def find_others(self, reference: str, key: str | None) -> list[RemoteSession]:
        """Return sessions of other machines by id or the beginning of one, deleted ones too, or by their key."""
        if key is not None:
            return [session for session in self.list_others() if session.record.key == key]
        # No pattern: a reference may have characters that mean something in one.
        where = " AND left(session_id, length(%s)) = %s ORDER BY updated_ms DESC LIMIT 10"
        return self._select(_OTHERS + where, [_storable(reference)] * 2) if reference else []

    def _select(self, query: str, values: Iterable[Any]) -> list[RemoteSession]:
        with self._database().reading() as connection:
            rows = connection.execute(query.encode(), [self._agent, self._machine(), *values]).fetchall()
        sessions = (_parse(*row) for row in rows)
        return [session for session in sessions if session is not None]

    def _machine(self) -> str:
        return get_machine(self._config.home)

    def _database(self) -> Database:
        from kept.postgres.open_database import open_database

        return open_database(self._config.memory_search.store)


def lock_session_records(connection: Connection, agent: str) -> None:
    """Let nobody else write rows of an agent until the transaction ends. A row is read from the catalogue only after
    this, so that nobody writes one that a forget has scrubbed meanwhile."""
    connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' session_records ' || %s, 0))", [agent]
    )


def _stamp(row: RecordBuilder) -> str:
    return f"{row.size}:{row.mtime_ns}:{row.tail_hash}"


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _parse(host: str, file: str, is_deleted: bool, text: str) -> RemoteSession | None:
    """Return a row as a session. One that another version wrote in another way is left out."""
    try:
        fields = json.loads(text)
        builder = RecordBuilder(**{name: value for name, value in fields.items() if name in FIELDS})
        record = replace(builder.record(""), transcript_path="", host=host)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    return RemoteSession(record, os.path.basename(file), is_deleted)

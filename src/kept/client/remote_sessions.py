"""Conversations that a server keeps, with the methods of `SessionStore` that commands use."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kept.base.git_remote import repository_keys
from kept.base.json_values import to_tree
from kept.base.records import Problem
from kept.base.values import frozen
from kept.client.outbox import Outbox, WaitingWrite
from kept.client.server_connection import ServerConnection, read_login
from kept.errors import ServerUnreachable
from kept.sessions.deleted import DeletedSession
from kept.sessions.entries import DamagedEntry, Entry, SessionStart, format_entry, parse_entry
from kept.sessions.importers.draft import Draft, safe_id
from kept.sessions.importers.import_run import SessionOutcome
from kept.sessions.record import SessionRecord
from kept.sessions.transcript import Damage, TranscriptLine

if TYPE_CHECKING:
    from kept.storage.contract import Storage


@frozen
class SentLine:
    """A line of a transcript as the API sends it."""

    number: int
    entry: str
    """JSON of the entry."""
    damage: str = ""
    """Why it cannot be read, if it cannot."""

    def to_line(self) -> TranscriptLine:
        line = TranscriptLine(self.number, 0, 0, self.entry.encode())
        if self.damage:
            line.content = Damage(self.number, self.damage)
        return line


@frozen
class RestoredSession:
    deleted: DeletedSession
    record: SessionRecord | None
    """None if its transcript was purged."""


@frozen
class SentDraft:
    """A session that was read from the files of another program, as it is sent."""

    id: str
    created: dt.datetime
    lines: tuple[str, ...]
    """Its start and its entries, as lines of a transcript."""
    source: str
    has_global_ids: bool = False

    @classmethod
    def of(cls, draft: Draft) -> SentDraft:
        entries = (Entry(draft.id, None, draft.created, draft.start), *draft.entries)
        lines = tuple(format_entry(entry).decode() for entry in entries)
        return cls(draft.id, draft.created, lines, draft.source, draft.has_global_ids)

    def to_draft(self) -> Draft:
        """Raise DamagedEntry for an id that no file can have, or lines that are none of a transcript."""
        if self.id != safe_id(self.id):
            raise DamagedEntry("its id cannot be part of the name of a file")
        start, *entries = [parse_entry(line.encode()) for line in self.lines or ("",)]
        if not (isinstance(start, Entry) and isinstance(start.body, SessionStart)):
            raise DamagedEntry("it does not begin with the start of a session")
        known = tuple(entry for entry in entries if isinstance(entry, Entry))
        return Draft(self.id, self.created, start.body, known, self.source, self.has_global_ids)


class RemoteSessions:
    folder = ""
    """The server does not say where its files are."""

    def __init__(self, connection: ServerConnection, outbox: Outbox | None = None) -> None:
        self._connection, self._outbox = connection, outbox
        self.agent_id = connection.login.agent
        if outbox:
            outbox.send(connection)

    @classmethod
    def open(cls, home: Storage) -> RemoteSessions:
        return cls(ServerConnection(read_login(home)), Outbox(home))

    def write_draft(self, draft: Draft) -> SessionOutcome:
        """Send a session. If the server cannot be reached, it waits here, in place of what waited of it before."""
        write = WaitingWrite(f"session {draft.id}", "sessions/import_draft", {"draft": to_tree(SentDraft.of(draft))})
        try:
            return self._connection.call(write.operation, SessionOutcome, **write.arguments)
        except ServerUnreachable:
            if self._outbox is None:
                raise
        self._outbox.replace(write)
        return SessionOutcome(draft.id, draft.source, "waiting", draft.messages, 0)

    def recent_context(self, *, cwd: str | None, current: str | None, sent: str | None) -> str:
        """Return what another agent gets at the start of a session in a folder of this machine."""
        repository = [*repository_keys(cwd)] if cwd else []
        return self._connection.call("context", str, cwd=cwd, current=current, sent=sent, repository=repository)

    def __enter__(self) -> RemoteSessions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def take_problems(self) -> tuple[Problem, ...]:
        """Return nothing: the server's log has what it cannot read."""
        return ()

    def recent(self, *, channel: str | None = None, limit: int | None = None) -> list[SessionRecord]:
        records = self._connection.call("sessions/recent", tuple[SessionRecord, ...], channel=channel)
        return [*records][:limit]

    def get(self, reference: str) -> SessionRecord:
        return self._call("get", reference)

    def iter_lines(self, session_id: str) -> Iterator[TranscriptLine]:
        return iter(self._lines(session_id, None))

    def tail(self, session_id: str, messages: int) -> list[TranscriptLine]:
        return self._lines(session_id, messages)

    def _lines(self, session_id: str, messages: int | None) -> list[TranscriptLine]:
        operation, sent = "sessions/iter_lines", tuple[SentLine, ...]
        lines = self._connection.call(operation, sent, reference=session_id, messages=messages)
        return [line.to_line() for line in lines]

    def deleted(self) -> list[DeletedSession]:
        return [*self._connection.call("sessions/deleted", tuple[DeletedSession, ...])]

    def find_deleted(self, session_id: str) -> DeletedSession | None:
        return next((session for session in self.deleted() if session.id == session_id), None)

    def delete(self, session_id: str, *, purge: bool = False) -> str | None:
        log = self._connection.call("sessions/delete", str, reference=session_id, purge=purge)
        return log or None

    def restore(self, reference: str) -> tuple[DeletedSession, SessionRecord | None]:
        restored = self._connection.call("sessions/restore", RestoredSession, reference=reference)
        return restored.deleted, restored.record

    def rename(self, session_id: str, title: str) -> SessionRecord:
        return self._call("rename", session_id, title=title)

    def reset(self, session_id: str) -> SessionRecord:
        return self._call("reset", session_id)

    def _call(self, method: str, reference: str, **arguments: Any) -> SessionRecord:
        return self._connection.call(f"sessions/{method}", SessionRecord, reference=reference, **arguments)

"""The folder of an agent's transcripts: creating, locking, deleting and restoring their files, and their catalogue."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TypeGuard

from kept.clock import Clock
from kept.config.agent_paths import AgentPaths
from kept.durable import make_private_folder
from kept.errors import (
    SessionExists,
    SessionNotFound,
    TranscriptTooNew,
    TranscriptUnwritable,
    UsageError,
)
from kept.file_lock import locked
from kept.sessions.catalogue import Catalogue, CatalogueLimits
from kept.sessions.deleted import (
    DeletedSession,
    DeletedSessions,
    hash_first_message,
    original_path,
    purge_transcript,
    rename_deleted,
    rename_restored,
)
from kept.sessions.entries import VERSION, AnyEntry, Entry, SessionStart, whole_ms
from kept.sessions.record import SessionRecord
from kept.sessions.transcript import LOCK_WAIT_S, Transcript
from kept.sessions.transcript_paths import transcript_name
from kept.sqlite import ProcessLock

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MAX_REMEMBERED = 1_000


class SessionFolder:
    """Transcripts of one agent, deleted ones, and the catalogue. Safe to share between threads.

    Callers that create, delete or restore a session hold the lock of the folder.
    """

    def __init__(self, paths: AgentPaths, clock: Clock, limits: CatalogueLimits | None) -> None:
        self.path = paths.sessions
        self.clock = clock
        self.deleted = DeletedSessions(paths.deleted_sessions, self.path)
        self.catalogue = Catalogue(paths.catalogue, self.path, limits)
        self._transcripts: OrderedDict[str, Transcript] = OrderedDict()
        self._lock = ProcessLock()

    def locked(self) -> AbstractContextManager[int]:
        """Hold the lock of the folder, so that no other process starts or ends a session."""
        try:
            make_private_folder(self.path)
        except OSError as exc:
            raise TranscriptUnwritable(f"{self.path}: could not be created ({exc.strerror}).") from exc
        return locked(self.path, wait_s=LOCK_WAIT_S, purpose="starting or ending a session")

    def transcript(self, path: str) -> Transcript:
        with self._lock:
            transcript = self._transcripts.get(path)
        return transcript or self._remember(Transcript(path))

    def _remember(self, transcript: Transcript) -> Transcript:
        """Keep a transcript for the next call: it knows its last entry, so that an append need not look for it."""
        with self._lock:
            remembered = self._transcripts.setdefault(transcript.path, transcript)
            self._transcripts.move_to_end(transcript.path)
            while len(self._transcripts) > _MAX_REMEMBERED:
                self._transcripts.popitem(last=False)
        return remembered

    # creating

    def create(
        self,
        start: SessionStart,
        session_id: str,
        *,
        created: dt.datetime | None = None,
        entries: Iterable[AnyEntry] = (),
    ) -> SessionRecord:
        """Create the transcript of a session."""
        if not _ID.fullmatch(session_id):
            raise UsageError(
                f"'{session_id}' cannot be the id of a session.",
                hint="Use up to 128 letters, digits, '-', '_' and '.', starting with a letter or digit.",
            )
        created = whole_ms(created or self.clock.now())
        path = os.path.join(self.path, transcript_name(session_id, created))
        self._remember(Transcript.create(path, [Entry(session_id, None, created, start), *entries]))
        record = self.catalogue.refresh_one(path)
        if record is None:
            raise SessionNotFound(f"{path}: was deleted.")
        return record

    def can_be_created(self, session_id: str | None) -> TypeGuard[str]:
        """Return whether a valid id names a session that never existed. A deleted session is not replaced: its
        transcript could not be restored then."""
        if not session_id or not _ID.fullmatch(session_id) or self.catalogue.find(session_id) is not None:
            return False
        return self.deleted.find(session_id) is None

    # deleting

    def delete(self, record: SessionRecord, *, purge: bool) -> str | None:
        """Rename the transcript of a session and return the new path. With ``purge``, remove it."""
        path = record.transcript_path
        with self.transcript(path).appending():
            first = hash_first_message(line.content for line in Transcript(path).iter_lines())
            new_path = rename_deleted(path, self.clock.now())
            self.deleted.add(record.id, first, whole_ms(self.clock.now()))
            if purge:
                self.purge(record.id)
        self.catalogue.forget(os.path.basename(path))
        return None if purge else new_path

    def purge(self, session_id: str) -> None:
        """Remove the transcripts of a deleted session."""
        while (deleted := self.deleted.find(session_id)) and deleted.transcript_path is not None:
            self.deleted.ensure_added(deleted, whole_ms(self.clock.now()))
            purge_transcript(deleted.transcript_path)

    def restore(self, reference: str) -> tuple[DeletedSession, SessionRecord | None]:
        """Give the transcript of a deleted session its old name. Return what it was, and its record if it is there."""
        deleted = self.deleted.get(reference)
        record = None
        if deleted.transcript_path is not None:
            self._require_free(deleted.id, original_path(deleted.transcript_path))
            record = self.catalogue.refresh_one(rename_restored(deleted.transcript_path))
        self.deleted.remove(deleted.id, whole_ms(self.clock.now()))
        return deleted, record

    def _require_free(self, session_id: str, path: str) -> None:
        self.catalogue.refresh_names()
        if self.catalogue.find(session_id) is not None or os.path.lexists(path):
            hint = "Nothing was changed. Delete that one first."
            raise SessionExists(f"There is a session {session_id} already.", hint=hint)


def require_known_version(session_id: str, version: int) -> None:
    if version > VERSION:
        raise TranscriptTooNew(f"Session {session_id} has version {version}; this Kept knows versions up to {VERSION}.")

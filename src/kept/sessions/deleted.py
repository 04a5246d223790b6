"""Deleted sessions, which stay deleted although another program still has the conversation.

A deleted transcript gets another name; one that is purged is empty too:

    20260314T150926Z_ID.jsonl.deleted-20260401T080000

That name is enough for an import to leave the conversation out. A transcript that is there counts more, so a person can
also restore one by its old name.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator

from kept.base.damaged_records import TORN_ENDING
from kept.base.durable import erase_file, replace_erasing, sync_folder
from kept.base.values import frozen
from kept.errors import SessionNotFound, TranscriptUnwritable, UsageError, WriteFailed
from kept.sessions.transcript_paths import parse_transcript_name

_MARK = ".deleted-"
_TIME_FORMAT = "%Y%m%dT%H%M%S"
_MOST_COPIES = 1_000
_SHOWN_CANDIDATES = 4


@frozen
class DeletedSession:
    id: str
    path: str
    """Renamed transcript."""
    is_purged: bool

    @property
    def original_path(self) -> str:
        """Path that the transcript had."""
        folder, name = os.path.split(self.path)
        return os.path.join(folder, name.partition(_MARK)[0])

    @property
    def deleted(self) -> dt.datetime | None:
        """Time of the deletion, or None if a person has changed the name."""
        try:
            return dt.datetime.strptime(self.path.rpartition(_MARK)[2].partition(".")[0], _TIME_FORMAT).astimezone()
        except ValueError:
            return None


class DeletedSessions:
    """The deleted sessions of one agent. Callers that change them hold the lock of the transcripts' folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find(self, session_id: str) -> DeletedSession | None:
        """Return a deleted session by its id, or None. Does not check whether it exists again."""
        return next((session for session in self.all() if session.id == session_id), None)

    def get(self, reference: str) -> DeletedSession:
        """Return a deleted session by its id or the beginning of it."""
        sessions = self.all()
        matches = [session for session in sessions if session.id == reference]
        matches = matches or [session for session in sessions if reference and session.id.startswith(reference)]
        if not matches:
            raise SessionNotFound(
                f"No session '{reference}' was deleted.", hint="'kept sessions list --deleted' shows deleted sessions."
            )
        if len(matches) > 1:
            ids = ", ".join(session.id for session in matches[:_SHOWN_CANDIDATES])
            raise UsageError(f"'{reference}' fits more than one deleted session: {ids}.", hint="Give more of the id.")
        return matches[0]

    def all(self) -> list[DeletedSession]:
        """Return the deleted sessions, each once, the last one first."""
        sessions: dict[str, DeletedSession] = {}
        for session in self._renamed():
            sessions.setdefault(session.id, session)
        return list(sessions.values())

    def add(self, path: str, now: dt.datetime) -> str:
        """Give a transcript a name that is not a transcript's. Return the new path. The caller holds its lock."""
        name = f"{path}{_MARK}{now:{_TIME_FORMAT}}"
        candidates = (name, *(f"{name}.{number}" for number in range(2, _MOST_COPIES)))
        new_path = next(candidate for candidate in candidates if not os.path.lexists(candidate))
        _rename(path, new_path)
        return new_path

    def purge(self, session_id: str) -> None:
        """Empty the transcripts of a deleted session, and remove the torn ends that were cut off them. All are
        overwritten first."""
        for session in self._renamed():
            if session.id == session_id:
                try:
                    erase_file(session.original_path + TORN_ENDING)
                    replace_erasing(session.path, b"")
                except WriteFailed as exc:
                    raise TranscriptUnwritable(exc.message) from exc

    def restore(self, session: DeletedSession) -> None:
        """Give a transcript its old name, which must be free; or remove the trace of one that was purged."""
        if not session.is_purged:
            _rename(session.path, session.original_path)
            return
        for other in self._renamed():
            if other.id == session.id and other.is_purged:
                erase_file(other.path)

    def _renamed(self) -> Iterator[DeletedSession]:
        """Yield the renamed transcripts, the last one first."""
        try:
            names = [name for name in os.listdir(self.folder) if _MARK in name]
            for name in sorted(names, key=lambda name: name.partition(_MARK)[2], reverse=True):
                path = os.path.join(self.folder, name)
                session_id = parse_transcript_name(name.partition(_MARK)[0])[0]
                yield DeletedSession(session_id, path, os.path.getsize(path) == 0)
        except FileNotFoundError:
            return
        except OSError as exc:  # going on would bring back what was deleted
            raise TranscriptUnwritable(f"{self.folder}: cannot be read ({exc.strerror}).") from exc


def _rename(path: str, new_path: str) -> None:
    try:
        os.rename(path, new_path)
        sync_folder(os.path.dirname(path))
    except OSError as exc:
        raise TranscriptUnwritable(f"{path}: could not be renamed ({exc.strerror}).") from exc

"""Deleted sessions, which stay deleted although another program still has the conversation.

A deleted transcript gets another name; one that is purged is empty too:

    20260314T150926Z_ID.jsonl.deleted-20260401T080000

That name is enough for an import to leave the conversation out. A transcript that is there counts more, so a person can
also restore one by its old name.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import TypeVar

from kept.base.values import frozen
from kept.errors import SessionNotFound, UsageError
from kept.sessions.record import SessionRecord
from kept.sessions.transcript import Transcripts
from kept.sessions.transcript_paths import parse_transcript_name
from kept.storage.contract import Append, Change, Erase, Move

DELETED_MARK = ".deleted-"
_TIME_FORMAT = "%Y%m%dT%H%M%S"
_MOST_COPIES = 1_000
_SHOWN_CANDIDATES = 4


@frozen
class DeletedSession:
    id: str
    log: str
    """Renamed transcript."""
    is_purged: bool

    @property
    def original(self) -> str:
        """Name that the transcript had."""
        return self.log.partition(DELETED_MARK)[0]

    @property
    def deleted(self) -> dt.datetime | None:
        """Time of the deletion, or None if a person has changed the name."""
        try:
            return dt.datetime.strptime(
                self.log.rpartition(DELETED_MARK)[2].partition(".")[0], _TIME_FORMAT
            ).astimezone()
        except ValueError:
            return None


S = TypeVar("S", DeletedSession, SessionRecord)


def list_deleted(transcripts: Transcripts) -> list[DeletedSession]:
    """Return the deleted sessions, each once, the last one first."""
    sessions: dict[str, DeletedSession] = {}
    for session in iter_deleted(transcripts):
        sessions.setdefault(session.id, session)
    return list(sessions.values())


def iter_deleted(transcripts: Transcripts) -> Iterator[DeletedSession]:
    """Yield the renamed transcripts, the last one first."""
    infos = [info for info in transcripts.storage.logs.list(transcripts.prefix) if DELETED_MARK in info.name]
    for info in sorted(infos, key=lambda info: info.name.partition(DELETED_MARK)[2], reverse=True):
        name = info.name[len(transcripts.prefix) :].partition(DELETED_MARK)[0]
        yield DeletedSession(parse_transcript_name(name)[0], info.name, info.size == 0)


def get_deleted(transcripts: Transcripts, reference: str) -> DeletedSession:
    """Return a deleted session by its id or the beginning of it."""
    sessions = list_deleted(transcripts)
    matches = [session for session in sessions if session.id == reference]
    matches = matches or [session for session in sessions if reference and session.id.startswith(reference)]
    if not matches:
        hint = "'kept sessions list --deleted' shows deleted sessions."
        raise SessionNotFound(f"No session '{reference}' was deleted.", hint=hint)
    return only_one(matches, reference, "deleted session")


def only_one(matches: Sequence[S], reference: str, noun: str) -> S:
    """Return what a reference fits. Raise UsageError if that is more than one session."""
    if len(matches) > 1:
        ids = ", ".join(session.id for session in matches[:_SHOWN_CANDIDATES])
        raise UsageError(f"'{reference}' fits more than one {noun}: {ids}.", hint="Give more of the id.")
    return matches[0]


def find_free_name(transcripts: Transcripts, log: str, now: dt.datetime) -> str:
    """Return a name for a transcript that is deleted now."""
    name = f"{log}{DELETED_MARK}{now:{_TIME_FORMAT}}"
    candidates = (name, *(f"{name}.{number}" for number in range(2, _MOST_COPIES)))
    return next(candidate for candidate in candidates if transcripts.storage.logs.find(candidate) is None)


def plan_purge(transcripts: Transcripts, session_id: str, now: dt.datetime, *logs: str) -> list[Change]:
    """Return the changes that erase the transcripts of a session, and leave an empty one: it was deleted."""
    deleted = [session.log for session in iter_deleted(transcripts) if session.id == session_id]
    whole = dict.fromkeys(log.partition(DELETED_MARK)[0] for log in (*logs, *deleted))
    torn = (f"{log}.torn" for log in whole)  # ends that older versions cut off
    marker = Append(find_free_name(transcripts, next(iter(whole)), now), ())
    return [*map(Erase, (*logs, *deleted, *torn)), marker]


def plan_restore(transcripts: Transcripts, deleted: DeletedSession) -> list[Change]:
    """Return the change that gives a transcript its old name, or those that remove the traces of a purged one."""
    if not deleted.is_purged:
        return [Move(deleted.log, deleted.original)]
    return [Erase(other.log) for other in iter_deleted(transcripts) if other.id == deleted.id and other.is_purged]

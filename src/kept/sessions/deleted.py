"""Deleted sessions, which stay deleted although another program still has the conversation.

A deleted transcript gets another name, and a line in `deleted.jsonl` in the agent's folder:

    20260314T150926Z_ID.jsonl.deleted-20260401T080000
    {"id":"ID","deleted":"2026-04-01T08:00:00.000+02:00"}

Either trace is enough for an import to leave the conversation out, so every step can be the last before a crash:

    delete     1. rename the transcript: now it is deleted     2. add the line     3. purge: remove the renamed file
    restore    1. rename it back: now it is a session          2. add a line {"id":"ID","restored":"…"}

A transcript that is there counts more than both traces. So a person can also restore one by its old name.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from typing import Any

from kept.damaged_records import TORN_ENDING, repair_end
from kept.durable import append_durably, erase_file, sync_folder
from kept.errors import SessionAmbiguous, SessionNotFound, TranscriptUnwritable, WriteFailed
from kept.limits import is_time, strict_json
from kept.sessions.entries import format_time, parse_time, to_json, whole_ms
from kept.sessions.transcript_paths import parse_transcript_name
from kept.values import frozen

_MARK = ".deleted-"
_TIME_FORMAT = "%Y%m%dT%H%M%S"
_MOST_COPIES = 1_000
_SHOWN_CANDIDATES = 4


@frozen
class DeletedSession:
    id: str
    deleted: dt.datetime | None
    """None if the time is not known."""
    transcript_path: str | None
    """Renamed transcript; None if it was purged."""


class DeletedSessions:
    """The deleted sessions of one agent. Callers that change them hold the lock of the transcripts' folder."""

    def __init__(self, path: str, folder: str) -> None:
        self.path = path
        self.folder = folder

    def find(self, session_id: str) -> DeletedSession | None:
        """Return a deleted session by its id, or None. Does not check whether it exists again."""
        line = self._lines().get(session_id)
        path = next((path for path, found_id in self._archived() if found_id == session_id), None)
        return None if line is None and path is None else DeletedSession(session_id, _deletion_time(line, path), path)

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
            raise SessionAmbiguous(f"'{reference}' fits more than one deleted session: {ids}.")
        return matches[0]

    def all(self) -> list[DeletedSession]:
        """Return the deleted sessions, the last one first."""
        lines, paths = self._lines(), dict[str, str]()
        for path, session_id in self._archived():
            paths.setdefault(session_id, path)
        ids = dict.fromkeys((*lines, *paths))
        sessions = [DeletedSession(own, _deletion_time(lines.get(own), paths.get(own)), paths.get(own)) for own in ids]
        return sorted(sessions, key=lambda session: session.deleted.timestamp() if session.deleted else 0, reverse=True)

    def add(self, path: str, session_id: str, now: dt.datetime) -> str:
        """Give a transcript a name that is not a transcript's. Return the new path. The caller holds its lock."""
        name = f"{path}{_MARK}{now:{_TIME_FORMAT}}"
        candidates = (name, *(f"{name}.{number}" for number in range(2, _MOST_COPIES)))
        new_path = next(candidate for candidate in candidates if not os.path.lexists(candidate))
        _rename(path, new_path)
        self._append({"id": session_id, "deleted": format_time(whole_ms(now))})
        return new_path

    def purge(self, session_id: str, now: dt.datetime) -> None:
        """Remove the transcripts of a deleted session for good, with the torn ends that were cut off them. All are
        overwritten first."""
        while (session := self.find(session_id)) and session.transcript_path is not None:
            if session_id not in self._lines():  # a command that was killed has not added it
                self._append({"id": session_id, "deleted": format_time(whole_ms(now))})
            for path in (session.transcript_path, original_path(session.transcript_path) + TORN_ENDING):
                try:
                    erase_file(path)
                except WriteFailed as exc:
                    raise TranscriptUnwritable(exc.message) from exc

    def remove(self, session_id: str, now: dt.datetime) -> None:
        if session_id in self._lines():
            self._append({"id": session_id, "restored": format_time(whole_ms(now))})

    def _append(self, line: dict[str, Any]) -> None:
        try:
            repair_end(self.path, lambda raw: _parse(raw) is not None)
            append_durably(self.path, to_json(line) + b"\n")
        except WriteFailed as exc:
            raise TranscriptUnwritable(exc.message) from exc

    def _lines(self) -> dict[str, dict[str, Any]]:
        """Return the lines of the sessions that were not restored, by id. A damaged line is skipped."""
        lines: dict[str, dict[str, Any]] = {}
        try:
            with open(self.path, "rb") as file:
                for raw in file:
                    line = _parse(raw)
                    if line is None:
                        continue
                    lines.pop(line["id"], None)
                    if "restored" not in line:
                        lines[line["id"]] = line
        except FileNotFoundError:
            pass
        except OSError as exc:
            # Going on would bring back what was deleted.
            raise TranscriptUnwritable(f"{self.path}: cannot be read ({exc.strerror}).") from exc
        return lines

    def _archived(self) -> Iterator[tuple[str, str]]:
        """Yield path and session id of the renamed transcripts, the last one first."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return
        except OSError as exc:
            raise TranscriptUnwritable(f"{self.folder}: cannot be read ({exc.strerror}).") from exc
        parts = ((name, *name.partition(_MARK)) for name in names if _MARK in name)
        for name, original, _, _ in sorted(parts, key=lambda part: part[3], reverse=True):
            yield os.path.join(self.folder, name), parse_transcript_name(original)[0]


def _parse(raw: bytes) -> dict[str, Any] | None:
    try:
        line = strict_json.decode(raw.decode())
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) and isinstance(line.get("id"), str) else None


def _deletion_time(line: dict[str, Any] | None, path: str | None) -> dt.datetime | None:
    try:
        if line is None and path is not None:  # a command that was killed has only renamed it
            return dt.datetime.strptime(path.rpartition(_MARK)[2].partition(".")[0], _TIME_FORMAT).astimezone()
        when = parse_time((line or {}).get("deleted"))
    except ValueError:
        return None
    return when if is_time(when) else None


# files


def original_path(deleted_path: str) -> str:
    """Return the path that a deleted transcript had."""
    folder, name = os.path.split(deleted_path)
    return os.path.join(folder, name.partition(_MARK)[0])


def rename_restored(deleted_path: str) -> str:
    """Give a deleted transcript its old name, which must be free. Return the path."""
    _rename(deleted_path, original_path(deleted_path))
    return original_path(deleted_path)


def _rename(path: str, new_path: str) -> None:
    try:
        os.rename(path, new_path)
        sync_folder(os.path.dirname(path))
    except OSError as exc:
        raise TranscriptUnwritable(f"{path}: could not be renamed ({exc.strerror}).") from exc

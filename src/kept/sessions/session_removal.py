"""Deleting transcripts: renamed, so that a person can restore them, or purged.

20260314T150926Z_ID.jsonl.deleted-20260401T080000    a deleted transcript; restored by its old name
"""

from __future__ import annotations

import datetime as dt
import os

from kept.durable import TORN_ENDING, sync_folder
from kept.errors import TranscriptUnwritable
from kept.sessions.transcript_paths import parse_transcript_name

_DELETED = ".deleted-"
_MOST_COPIES = 1_000


def rename_deleted(path: str, now: dt.datetime) -> str:
    """Give a transcript a name that is not a transcript's. Return the new path. The caller holds its lock."""
    new_path = _free_path(f"{path}{_DELETED}{now:%Y%m%dT%H%M%S}")
    try:
        os.rename(path, new_path)
        sync_folder(os.path.dirname(path))
    except OSError as exc:
        raise _could_not_remove(path, exc) from exc
    return new_path


def purge(path: str) -> None:
    """Delete a transcript for good, with the torn ends that were cut off it. The caller holds its lock."""
    try:
        os.unlink(path)
        try:
            os.unlink(path + TORN_ENDING)
        except FileNotFoundError:
            pass
        sync_folder(os.path.dirname(path))
    except OSError as exc:
        raise _could_not_remove(path, exc) from exc


def was_deleted(folder: str, session_id: str) -> bool:
    """Return whether a deleted transcript of this session is in the folder."""
    names = (name.partition(_DELETED) for name in os.listdir(folder))
    return any(mark and parse_transcript_name(original)[0] == session_id for original, mark, _ in names)


def _free_path(path: str) -> str:
    candidates = (path, *(f"{path}.{number}" for number in range(2, _MOST_COPIES)))
    return next(candidate for candidate in candidates if not os.path.lexists(candidate))


def _could_not_remove(path: str, error: OSError) -> TranscriptUnwritable:
    return TranscriptUnwritable(f"{path}: could not be removed ({error.strerror}).")

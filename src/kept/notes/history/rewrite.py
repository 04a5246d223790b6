"""Checks the history: reads every line and every version, and finds damage."""

from __future__ import annotations

from kept.base.values import frozen
from kept.base.wording import plural
from kept.errors import HistoryDamaged
from kept.notes.history.history_folder import CHANGES
from kept.notes.history.note_change import NoteChange
from kept.notes.history.note_history import NoteHistory


@frozen
class HistoryState:
    changes: int
    torn: tuple[str, ...] = ()
    """Files with lines that cannot be read. They are left out until the next forget drops them."""
    lost: int = 0
    """Old versions that cannot be read. No repair brings them back."""


def check_history(history: NoteHistory) -> HistoryState:
    """Read every line and every version. Change nothing."""
    torn: list[str] = []
    changes: list[NoteChange] = []
    for name in history.log.names():
        lines = list(history.log.iter_oldest(name))
        changes += [change for change in lines if change is not None]
        if count := lines.count(None):
            torn.append(f"{history.folder.path(CHANGES, name)}: {plural(count, 'line')} cannot be read.")
    digests = {digest for change in changes for digest in (change.before, change.after) if digest is not None}
    return HistoryState(len(changes), tuple(torn), sum(not _is_readable(history, digest) for digest in digests))


def _is_readable(history: NoteHistory, digest: str) -> bool:
    try:
        history.versions.read(digest)
    except HistoryDamaged:
        return False
    return True

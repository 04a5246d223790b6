"""The check of a history: every line and every version is read."""

from __future__ import annotations

from kept.base.values import frozen
from kept.base.wording import plural
from kept.errors import HistoryDamaged
from kept.notes.history.note_history import NoteHistory, parse_change


@frozen
class HistoryState:
    changes: int
    torn: tuple[str, ...] = ()
    """Logs with lines that cannot be read. They are left out until the next forget drops them."""
    lost: int = 0
    """Old versions that cannot be read. No repair brings them back."""


def check_history(history: NoteHistory) -> HistoryState:
    """Read every line and every version. Change nothing."""
    torn: list[str] = []
    count = 0
    digests: set[str | None] = set()
    for log in history.logs():
        lines = [parse_change(line.data) for line in history.workspace.storage.logs.read(log) if line.data.strip()]
        changes = [change for change in lines if change is not None]
        count += len(changes)
        digests.update(digest for change in changes for digest in (change.before, change.after))
        if missing := len(lines) - len(changes):
            torn.append(f"{log}: {plural(missing, 'line')} cannot be read.")
    lost = 0
    for digest in digests:
        try:
            history.read_version(digest)
        except HistoryDamaged:
            lost += 1
    return HistoryState(count, tuple(torn), lost)

"""Checks the history: lines that can be read, versions that are as their hashes say, and chains without gaps."""

from __future__ import annotations

from kept.damaged_records import set_aside
from kept.errors import HistoryDamaged
from kept.file_lock import locked
from kept.history.change_log import LogPosition
from kept.history.history_folder import CHANGES
from kept.history.note_change import NoteChange
from kept.history.note_history import NoteHistory
from kept.history.rewrite import remove_leftovers
from kept.history.version_store import VersionReader
from kept.values import frozen

LOCK_WAIT_S = 10.0


@frozen
class HistoryFault:
    reason: str
    is_repairable: bool


@frozen
class HistoryState:
    changes: int
    faults: tuple[HistoryFault, ...]


def check_history(history: NoteHistory) -> HistoryState:
    """Read every line and every version. Change nothing."""
    faults: list[HistoryFault] = []
    states: dict[str, set[str | None]] = {}
    changes: list[tuple[LogPosition, NoteChange]] = []
    for name in history.log.names():
        torn = [position for position, _, change in history.log.iter_oldest(name) if change is None]
        if torn:
            path = history.folder.path(CHANGES, name)
            faults.append(HistoryFault(f"{path}: {_count(len(torn), 'line')} cannot be read.", is_repairable=True))
        changes += [(at, change) for at, _, change in history.log.iter_oldest(name) if change is not None]
    missing = _missing_versions(history, {change.after for _, change in changes if change.after is not None})
    if missing:
        faults.append(
            HistoryFault(f"{_count(len(missing), 'old version')} of notes cannot be read.", is_repairable=False)
        )
    for _, change in changes:
        states.setdefault(change.path, {None}).add(change.after)
        states.setdefault(change.was or change.path, {None})
    gaps = [change for _, change in changes if change.before not in states[change.was or change.path]]
    if gaps:
        reason = (
            f"{_count(len(gaps), 'change')} cannot be taken back, such as {gaps[0].id[:8]}: earlier lines are lost."
        )
        faults.append(HistoryFault(reason, is_repairable=False))
    return HistoryState(len(changes), tuple(faults))


def repair_history(history: NoteHistory) -> None:
    """Move lines that cannot be read to a .damaged file beside them. Nothing else can be repaired."""
    root = history.workspace.root
    with locked(root, wait_s=LOCK_WAIT_S, purpose="writing to this workspace"):
        remove_leftovers(history)
        for name in history.log.names():
            lines = [(line, change) for _, line, change in history.log.iter_oldest(name)]
            damaged = [line for line, change in lines if change is None]
            if damaged:
                set_aside(history.folder.path(CHANGES, name), damaged)
                good = b"".join(line + b"\n" for line, change in lines if change is not None)
                history.folder.replace(CHANGES, name, good)


def _missing_versions(history: NoteHistory, digests: set[str]) -> list[str]:
    reader = VersionReader(history.log, is_indexed=True)
    missing = []
    for digest in digests:
        try:
            reader.read(digest)
        except HistoryDamaged:
            missing.append(digest)
    return missing


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"

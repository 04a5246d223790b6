"""Records what other programs did to the notes: edits in an editor, removals, renames, and what arrived by syncing.

A sync of the index calls this for the notes that it is about to index, so only those are looked at. The first time,
every note is stored once, as the baseline that later edits are compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from kept.base.digest import digest_bytes
from kept.errors import KeptError
from kept.notes.history.note_change import ChangeKind, NoteChange, parse_change
from kept.notes.history.note_history import NoteHistory, state_after
from kept.notes.note_commit import repeat_on_conflict
from kept.storage.contract import START, LogPosition

_FEW = 8
"""Number of notes up to which each is searched for in the lines. For more, all lines are read once."""


class LastChanges:
    """Last change of every note on every machine. Lines that were appended since the last call are read in addition."""

    def __init__(self, history: NoteHistory) -> None:
        self._history = history
        self._ends: dict[str, LogPosition] = {}
        self._by_path: dict[str, dict[str, NoteChange]] = {}

    def load(self) -> None:
        for log in self._history.logs():
            for line in self._history.storage.logs.read(log, self._ends.get(log, START)):
                self._ends[log] = line.end
                change = parse_change(line.data)
                if change is not None:
                    self._by_path.setdefault(change.path, {})[log] = change
                    if change.was is not None:
                        self._by_path.setdefault(change.was, {})[log] = change

    def find(self, path: str) -> tuple[NoteChange | None, list[NoteChange]]:
        """Return the last change of a note on this machine, and those on other machines."""
        by_log = self._by_path.get(path, {})
        own = by_log.get(self._history.own_log())
        return own, [change for change in by_log.values() if change is not own]

    def own_notes(self) -> dict[str, str]:
        """Return the notes that exist as far as this machine has recorded, with their hashes."""
        log = self._history.own_log()
        owned = ((path, changes.get(log)) for path, changes in self._by_path.items())
        states = ((path, state_after(change, path)) for path, change in owned if change is not None)
        return {path: digest for path, digest in states if digest is not None}


class UnseenChanges:
    """Compares notes with the history, and records the differences."""

    def __init__(self, history: NoteHistory, *, max_bytes: int) -> None:
        self.history = history
        self._max_bytes = max_bytes
        self._last = LastChanges(history)
        self._loaded = False
        self._searched: dict[str, tuple[NoteChange | None, list[NoteChange]]] = {}
        self.written: dict[str, str | None] = {}
        """Notes that Kept wrote since the last sync, with their hashes: they need not be looked up in all lines."""
        self.compared = START
        """Place in this machine's log up to which every note in it was compared with its text."""

    def record_written(self, start: LogPosition, *, but: Set[str] = frozenset()) -> int:
        """Compare the notes in the lines after ``start``, which Kept wrote, with their texts, but not those that the
        caller compares. Return the number of changes."""
        log, logs = self.history.own_log(), self.history.storage.logs
        end = logs.end(log)
        lines = (line for line in logs.read(log, start) if line.end.offset <= end.offset)
        changes = [change for line in lines if (change := parse_change(line.data)) is not None]
        for change in changes:
            self.written |= {change.path: change.after} if change.was is None else {change.was: None}
        names = (name for change in changes for name in (change.path, change.was))
        paths = dict.fromkeys(name for name in names if name and name not in but)
        self.compared = end
        return self.record(dict.fromkeys(paths, ""), paths) if paths else 0

    def record(
        self,
        notes: Mapping[str, str],
        removed: Iterable[str] = (),
        *,
        is_first: bool = False,
        present: Set[str] | None = None,
    ) -> int:
        """Record the notes whose hash the history does not know, and those that are gone. Return their number.

        ``is_first``: a note that the history does not know is older than the history, not new. ``present`` are all
        notes there are; every other one that this machine has recorded is gone.
        """
        removed_paths = list(removed)
        self._loaded = self._loaded or is_first or present is not None or len(notes) + len(removed_paths) > _FEW
        return repeat_on_conflict(lambda: self._record(notes, list(removed_paths), is_first, present))

    def _record(self, notes: Mapping[str, str], removed: list[str], is_first: bool, present: Set[str] | None) -> int:
        log, storage = self.history.own_log(), self.history.storage
        end = storage.logs.end(log)
        self._searched.clear()
        if self._loaded:
            self._last.load()
        if present is not None:
            self.compared = end
            removed += [path for path in self._last.own_notes() if path not in present]
        changed = [path for path, digest in notes.items() if not self._is_known(path, digest)]
        contents = {path: content for path in changed if (content := self._read(path)) is not None}
        changes = self._plan(contents, [path for path in removed if self._is_gone(path)], is_first=is_first)
        if changes:
            versions = [contents[change.path] for change in changes if change.path in contents]
            receipt = storage.commit(self.history.plan(changes, versions, end))
            if end == self.compared:  # no other process has written meanwhile
                self.compared = receipt.ends[log]
        return len(changes)

    # comparing

    def _find(self, path: str) -> tuple[NoteChange | None, list[NoteChange]]:
        if self._loaded:
            return self._last.find(path)
        if path not in self._searched:
            self._searched[path] = self.history.find_last(path)
        return self._searched[path]

    def _is_in_history(self, path: str) -> bool:
        own, others = self._find(path)
        return own is not None or bool(others)

    def _is_known(self, path: str, digest: str | None) -> bool:
        own, others = self._find(path)
        return any(state_after(change, path) == digest for change in (own, *others) if change is not None)

    def _read(self, path: str) -> bytes | None:
        try:
            return self.history.workspace.read(path, max_bytes=self._max_bytes).raw
        except KeptError:
            return None  # the sync reports it, or it is gone again

    def _is_gone(self, path: str) -> bool:
        """Return whether a note no longer exists, and the history does not know that."""
        if not self._is_in_history(path) or self._is_known(path, None):
            return False
        try:
            return self.history.workspace.find(path) is None
        except KeptError:
            return False

    # recording

    def _plan(self, contents: dict[str, bytes], removed_paths: list[str], *, is_first: bool) -> list[NoteChange]:
        """Return the changes of notes that read so now, and of those that are gone."""
        changes: list[NoteChange] = []
        vanished = {state: path for path in removed_paths if (state := self._last_state(path)) is not None}
        for path, content in contents.items():
            digest = digest_bytes(content)
            if self._is_known(path, digest):
                continue  # changed again, to what the history knows
            before, is_new = self._last_state(path), not self._is_in_history(path)
            if is_new and digest in vanished:
                old = vanished.pop(digest)
                removed_paths.remove(old)
                renamed = self.history.new_change(path, digest, digest, kind="rename")
                changes.append(replace(renamed, was=old, why="renamed by another program"))
                continue
            kind: ChangeKind = "baseline" if is_new and is_first else "by_hand"
            changes.append(self.history.new_change(path, before, digest, kind=kind))
        changes += [
            self.history.new_change(path, self._last_state(path), None, kind="by_hand") for path in removed_paths
        ]
        return changes

    def _last_state(self, path: str) -> str | None:
        own, others = self._find(path)
        known = [change for change in (own, *others) if change is not None]
        latest = max(known, key=lambda change: change.time, default=None)
        return None if latest is None else state_after(latest, path)

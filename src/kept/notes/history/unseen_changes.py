"""Records what other programs did to the notes: edits in an editor, removals, renames, and what arrived by syncing.

A sync of the index calls this for the notes that it is about to index, so only those are looked at. The first time,
every note is stored once, as the baseline that later edits are compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from kept.base.digest import digest_bytes
from kept.errors import KeptError
from kept.notes.history.note_history import ChangeKind, NoteChange, NoteHistory, last_state, parse_change, state_after
from kept.storage.contract import START, LogPosition, retried

_FEW = 8
"""Number of notes up to which each is searched for in the lines. For more, all lines are read once."""


class UnseenChanges:
    """Compares notes with the history, and records the differences."""

    def __init__(self, history: NoteHistory, *, max_bytes: int) -> None:
        self.history = history
        self._max_bytes = max_bytes
        self._by_path: dict[str, dict[str, NoteChange]] | None = None
        """Last change of every note by log, once there were many notes to compare."""
        self._ends: dict[str, LogPosition] = {}
        self.written: dict[str, str | None] = {}
        """Notes that Kept wrote since the last sync, with their hashes: they need not be looked up in all lines."""
        self.compared = START
        """Place in this machine's log up to which every note in it was compared with its text."""

    def record_written(self, start: LogPosition, *, but: Set[str] = frozenset()) -> None:
        """Compare the notes in the lines after ``start``, which Kept wrote, with their texts, but not those that the
        caller compares."""
        log, logs = self.history.own_log(), self.history.storage.logs
        end = logs.end(log)
        lines = (line for line in logs.read(log, start) if line.end.offset <= end.offset)
        changes = [change for line in lines if (change := parse_change(line.data)) is not None]
        for change in changes:
            self.written |= {change.path: change.after} if change.was is None else {change.was: None}
        names = (name for change in changes for name in (change.path, change.was))
        paths = dict.fromkeys(name for name in names if name and name not in but)
        self.compared = end
        if paths:
            self.record(dict.fromkeys(paths, ""), paths)

    def record(
        self,
        notes: Mapping[str, str],
        removed: Iterable[str] = (),
        *,
        is_first: bool = False,
        present: Set[str] | None = None,
    ) -> None:
        """Record the notes whose hash the history does not know, and those that are gone.

        ``is_first``: a note that the history does not know is older than the history, not new. ``present`` are all
        notes there are; every other one that this machine has recorded is gone.
        """
        removed = list(removed)
        if self._by_path is None and (is_first or present is not None or len(notes) + len(removed) > _FEW):
            self._by_path = {}
        retried(lambda: self._record(notes, list(removed), is_first, present))

    def _record(self, notes: Mapping[str, str], removed: list[str], is_first: bool, present: Set[str] | None) -> None:
        log, storage = self.history.own_log(), self.history.storage
        end = storage.logs.end(log)
        by_path = self._load()
        if present is not None:
            self.compared = end
            recorded = ((path, changes[log]) for path, changes in by_path.items() if log in changes)
            removed += [path for path, change in recorded if path not in present and state_after(change, path)]
        known: dict[str, list[NoteChange]] = {}
        for path in (*notes, *removed):
            known[path] = self.history.find_last(path) if self._by_path is None else [*by_path.get(path, {}).values()]

        def is_known(path: str, digest: str | None) -> bool:
            return any(state_after(change, path) == digest for change in known[path])

        read = {path: self._read(path) for path, digest in notes.items() if not is_known(path, digest)}
        # A note may have been changed again, to what the history knows.
        contents = {
            path: raw for path, raw in read.items() if raw is not None and not is_known(path, digest_bytes(raw))
        }
        missing = [path for path in removed if known[path] and not is_known(path, None) and self._is_gone(path)]
        changes = self._plan(contents, missing, known, is_first=is_first)
        if changes:
            ends = storage.commit(self.history.plan(changes, contents.values(), log, end))
            if end == self.compared:  # no other process has written meanwhile
                self.compared = ends[log]

    def _load(self) -> dict[str, dict[str, NoteChange]]:
        """Read the lines that were appended since the last call, if all lines are read at all."""
        if self._by_path is None:
            return {}
        for log in self.history.logs():
            for line in self.history.storage.logs.read(log, self._ends.get(log, START)):
                self._ends[log] = line.end
                change = parse_change(line.data)
                for path in (change.path, change.was) if change else ():
                    if change and path is not None:
                        self._by_path.setdefault(path, {})[log] = change
        return self._by_path

    def _read(self, path: str) -> bytes | None:
        try:
            return self.history.workspace.read(path, max_bytes=self._max_bytes).raw
        except KeptError:
            return None  # the sync reports it, or it is gone again

    def _is_gone(self, path: str) -> bool:
        try:
            return self.history.workspace.find(path) is None
        except KeptError:
            return False

    def _plan(
        self, contents: dict[str, bytes], missing: list[str], known: dict[str, list[NoteChange]], *, is_first: bool
    ) -> list[NoteChange]:
        """Return the changes of notes that read so now, and of those that are gone."""
        changes: list[NoteChange] = []
        vanished = {state: path for path in missing if (state := last_state(known[path], path)) is not None}
        for path, content in contents.items():
            digest = digest_bytes(content)
            if not known[path] and digest in vanished:
                old = vanished.pop(digest)
                missing.remove(old)
                why = "renamed by another program"
                changes.append(self.history.new_change(path, digest, digest, kind="rename", was=old, why=why))
                continue
            kind: ChangeKind = "baseline" if is_first and not known[path] else "by_hand"
            changes.append(self.history.new_change(path, last_state(known[path], path), digest, kind=kind))
        return changes + [
            self.history.new_change(path, last_state(known[path], path), None, kind="by_hand") for path in missing
        ]

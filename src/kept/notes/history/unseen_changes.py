"""Records what other programs did to the notes: edits in an editor, removals, renames, and what arrived by syncing.

A sync of the index calls this for the notes that it is about to index, so only those are looked at. The first time,
every note is stored once, as the baseline that later edits are compared with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter

from kept.base.digest import digest_bytes
from kept.errors import KeptError
from kept.notes.history.note_history import ChangeKind, NoteChange, NoteHistory, parse_change
from kept.storage.contract import START, LogPosition, retried

_FEW = 8
"""Number of notes up to which each is searched for in the lines. For more, all lines are read once."""


@dataclass
class UnseenChanges:
    """Compares notes with the history, and records the differences."""

    history: NoteHistory
    max_bytes: int
    written: dict[str, str | None] = field(default_factory=dict)
    """Notes that Kept wrote since the last sync, with their hashes: they need not be looked up in all lines."""
    compared: LogPosition = START
    """Place in this machine's log up to which every note in it was compared with its text."""
    log: str = ""
    """This machine's log."""
    _by_path: dict[str, dict[str, tuple[str, str | None]]] | None = None
    """Time of the last change of every note by log, and its hash then, once there were many notes to compare."""
    _ends: dict[str, LogPosition] = field(default_factory=dict)

    def record_written(self, start: LogPosition, *, but: Set[str] = frozenset()) -> None:
        """Compare the notes in the lines after ``start``, which Kept wrote, with their texts, but not those that the
        caller compares."""
        log, logs = self.history.own_log(), self.history.workspace.storage.logs
        self.log = log
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

    @retried
    def record(
        self,
        notes: Mapping[str, str],
        removed: Collection[str] = (),
        *,
        is_first: bool = False,
        present: Set[str] | None = None,
    ) -> None:
        """Record the notes whose hash the history does not know, and those that are gone.

        ``is_first``: a note that the history does not know is older than the history, not new. ``present`` are all
        notes there are; every other one that this machine has recorded is gone.
        """
        if self._by_path is None and (is_first or present is not None or len(notes) + len(removed) > _FEW):
            self._by_path = {}
        log, storage = self.history.own_log(), self.history.workspace.storage
        self.log = log
        end = storage.logs.end(log)
        by_path = self._load()
        if present is not None:
            self.compared = end
            own = ((path, last[log][1]) for path, last in by_path.items() if log in last)
            removed = [*removed, *(path for path, state in own if state and path not in present)]
        known: dict[str, list[str | None]] = {}
        for path in (*notes, *removed):
            last_first = sorted(by_path.get(path, {}).values(), key=itemgetter(0), reverse=True)
            states = [state for _, state in last_first]
            known[path] = self.history.find_states(path) if self._by_path is None else states
        contents: dict[str, bytes] = {}
        for path in (path for path, digest in notes.items() if digest not in known[path]):
            with suppress(KeptError):  # the sync reports it, or it is gone again
                raw = self.history.workspace.read(path, max_bytes=self.max_bytes).raw
                if digest_bytes(raw) not in known[path]:  # it may have been changed again, to what the history knows
                    contents[path] = raw
        missing = [path for path in removed if known[path] and None not in known[path] and self._is_gone(path)]
        if planned := self._plan(contents, missing, known, is_first=is_first):
            ends = storage.commit(self.history.plan(planned, contents.values(), log, end))
            if end == self.compared:  # no other process has written meanwhile
                self.compared = ends[log]

    def _load(self) -> dict[str, dict[str, tuple[str, str | None]]]:
        """Read the lines that were appended since the last call, if all lines are read at all."""
        if self._by_path is None:
            return {}
        for log in self.history.logs():
            for line in self.history.workspace.storage.logs.read(log, self._ends.get(log, START)):
                self._ends[log] = line.end
                change = parse_change(line.data)
                for path in (change.path, change.was) if change else ():
                    if change and path is not None:
                        state = change.after if change.path == path else None
                        self._by_path.setdefault(path, {})[log] = change.time, state
        return self._by_path

    def _is_gone(self, path: str) -> bool:
        try:
            return self.history.workspace.find(path) is None
        except KeptError:
            return False

    def _plan(
        self, contents: dict[str, bytes], missing: list[str], known: dict[str, list[str | None]], *, is_first: bool
    ) -> list[NoteChange]:
        """Return the changes of notes that read so now, and of those that are gone."""
        changes: list[NoteChange] = []
        before = {path: states[0] for path, states in known.items() if states}
        vanished = {state: path for path in missing if (state := before[path]) is not None}
        for path, content in contents.items():
            digest = digest_bytes(content)
            if not known[path] and digest in vanished:
                old = vanished.pop(digest)
                missing.remove(old)
                why = "renamed by another program"
                changes.append(self.history.new_change(path, digest, digest, kind="rename", was=old, why=why))
                continue
            kind: ChangeKind = "baseline" if is_first and not known[path] else "by_hand"
            changes.append(self.history.new_change(path, before.get(path), digest, kind=kind))
        return changes + [self.history.new_change(path, before[path], None, kind="by_hand") for path in missing]

"""The part of a sync that keeps the history complete: before notes are indexed, changes by other programs are recorded.

The order matters. If the process is killed after the history has a change and before the index has it, the next sync
indexes the note, and finds the change recorded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kept.base.records import Problem
from kept.config import Config
from kept.errors import KeptError
from kept.notes.workspace import Workspace, list_names
from kept.storage.contract import LogPosition

if TYPE_CHECKING:
    from kept.base.clock import Clock
    from kept.index.sources import FileBatch
    from kept.index.sqlite.index import Index
    from kept.notes.history.unseen_changes import UnseenChanges
    from kept.notes.scan import Scan

META_HISTORY = "history"
"""Name of this machine and the place in its log up to which lines were compared with the notes, once every note that
the index has is in the history. After a failure, _INCOMPLETE or, if there was no name, _NEVER: then all notes are
compared with the history by the next sync that has anything to do."""
_CHANGES = ".kept/history/changes/"  # not imported: a search does not need `kept.notes.history`
_INCOMPLETE = ""
_NEVER = False


@dataclass
class HistorySync:
    """Records changes by other programs, in one sync. A failure is a problem in the report, and stops nothing."""

    index: Index
    config: Config
    workspace: Workspace
    clock: Clock
    problems: list[Problem] = field(default_factory=list)
    _unseen: UnseenChanges | None = None
    _is_first: bool = False

    def __post_init__(self) -> None:
        self._is_on = self.config.agent.history.enabled and _may_write(self.config, self.workspace)

    def is_due(self) -> bool:
        """Return whether notes have to be compared with the history, even if none differs from the index.

        A note that Kept wrote after the last sync may have been removed or changed back since.
        """
        if not self._is_on:
            return False
        state = self.index.get_meta(META_HISTORY)
        if not state:
            return state is None
        machine, compared = state
        return bool(self.workspace.storage.logs.end(f"{_CHANGES}{machine}.jsonl").offset != compared)

    def compares_all(self) -> bool:
        """Return whether all notes have to be compared: that was never done, or the history was deleted since."""
        state = self.index.get_meta(META_HISTORY)
        return not state or (state[1] > 0 and not _has_history(self.workspace))

    def begin(self, scan: Scan) -> None:
        """Compare notes with the history: those that Kept wrote since the last sync, or all if that was never done."""
        if not self._is_on:
            return
        state = self.index.get_meta(META_HISTORY)
        if not self.compares_all():
            # The files that were looked at differ from the index, so each of them is in a batch.
            looked_at = {path for source, path in scan.only or () if source == "memory"}
            self._attempt(lambda unseen: unseen.record_written(LogPosition(state[1]), but=looked_at))
            return
        self._is_first = state != _INCOMPLETE
        with self.index.reading():
            rows = self.index.live.file_rows()
        present = {file.path for file in scan.files if file.source == "memory"}
        notes = {path: row.hash for (source, path), row in rows.items() if source == "memory" and path in present}
        self._record(notes, [], present=present)

    def note_batch(self, batch: FileBatch) -> None:
        """Record what other programs did to the notes of a batch."""
        files = (*batch.touched, *(prepared.write.file for prepared in batch.prepared))
        written = self._unseen.written if self._unseen else {}
        notes = {row.path: row.hash for row in files if row.source == "memory" and written.get(row.path) != row.hash}
        removed = [path for source, path in batch.removed if source == "memory"]
        if self._is_on and (notes or removed):
            self._record(notes, removed)

    def finish(self) -> None:
        """Note in the index that the history is complete, inside the caller's transaction."""
        value: list[str | int] | str | bool | None = None
        if self._is_on and self.problems:
            value = _NEVER if self._is_first else _INCOMPLETE
        elif self._is_on:
            try:
                unseen = self._get_unseen()
                machine = unseen.history.own_log().removeprefix(_CHANGES).removesuffix(".jsonl")
                value = [machine, unseen.compared.offset]
            except KeptError:
                value = None
        if self.index.get_meta(META_HISTORY) != value:
            self.index.put_meta(META_HISTORY, value)

    def _record(self, notes: dict[str, str], removed: list[str], *, present: set[str] | None = None) -> None:
        own = {path: digest for path, digest in notes.items() if not os.path.isabs(path)}
        removed_paths = [path for path in removed if not os.path.isabs(path)]
        self._attempt(lambda unseen: unseen.record(own, removed_paths, is_first=self._is_first, present=present))

    def _attempt(self, action: Callable[[UnseenChanges], object]) -> None:
        try:
            action(self._get_unseen())
        except KeptError as exc:
            problem = Problem(".kept/history", f"changes by other programs are not recorded: {exc.message}")
            self.problems += [problem] if problem not in self.problems else []

    def _get_unseen(self) -> UnseenChanges:
        if self._unseen is None:
            from kept.notes.history.note_history import open_history
            from kept.notes.history.unseen_changes import UnseenChanges

            history = open_history(self.config, self.workspace, self.clock)
            self._unseen = UnseenChanges(history, max_bytes=self.config.memory_search.max_file_bytes)
        return self._unseen


def _may_write(config: Config, workspace: Workspace) -> bool:
    """Return whether a sync may begin a history. It may not in a folder that was named for one run only: a search in a
    repository must not leave files there."""
    return config.trusts_workspace or _has_history(workspace)


def _has_history(workspace: Workspace) -> bool:
    return "history" in list_names(workspace.storage, ".kept")

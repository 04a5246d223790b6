"""The part of a sync that keeps the history complete: before notes are indexed, changes by other programs are recorded.

The order matters. If the process is killed after the history has a change and before the index has it, the next sync
indexes the note, and finds the change recorded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kept.base.records import Problem
from kept.errors import KeptError
from kept.notes.workspace import list_names
from kept.storage.contract import LogPosition

if TYPE_CHECKING:
    from kept.index.sources import FileBatch, SourceReader
    from kept.index.sqlite.index import Index
    from kept.notes.history.unseen_changes import UnseenChanges
    from kept.notes.scan import Scan

# Name of this machine and the place in its log up to which lines were compared with the notes, once every note that the
# index has is in the history. After a failure, _INCOMPLETE or, if there was no name, _NEVER: then all notes are
# compared with the history by the next sync that has anything to do.
META_HISTORY = "history"
_CHANGES = ".kept/history/changes/"  # not imported: a search does not need `kept.notes.history`
_INCOMPLETE = ""
_NEVER = False


class HistorySync:
    """Records changes by other programs, in one sync. A failure is a problem in the report, and stops nothing."""

    def __init__(self, index: Index, reader: SourceReader) -> None:
        self.index = index
        self.reader = reader
        self.problems: list[Problem] = []
        self._unseen: UnseenChanges | None = None
        # A search in a folder that was named for one run only, such as a repository, must not leave a history there.
        self._exists = "history" in list_names(reader.workspace.storage, ".kept")
        self._is_on = reader.config.agent.history.enabled and (reader.config.trusts_workspace or self._exists)
        self._state: Any = None

    def load(self) -> None:
        """Read what earlier syncs have compared."""
        self._state = state = self.index.get_meta(META_HISTORY)
        self.compares_all = self._is_on and (not state or (state[1] > 0 and not self._exists))
        """Whether all notes have to be compared: that was never done, or the history was deleted since."""
        self._is_first = self.compares_all and state != _INCOMPLETE

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
        return bool(self.reader.workspace.storage.logs.end(f"{_CHANGES}{machine}.jsonl").offset != compared)

    def begin(self, scan: Scan) -> None:
        """Compare notes with the history: those that Kept wrote since the last sync, or all if that was never done."""
        if not self._is_on:
            return
        if not self.compares_all:
            # The files that were looked at differ from the index, so each of them is in a batch.
            looked_at = {path for source, path in scan.only or () if source == "memory"}
            self._attempt(lambda unseen: unseen.record_written(LogPosition(self._state[1]), but=looked_at))
            return
        with self.index.reading():
            rows = self.index.live.file_rows()
        present = {file.path for file in scan.files if file.source == "memory"}
        notes = {path: row.hash for (source, path), row in rows.items() if source == "memory" and path in present}
        self._record(notes, [], present=present)

    def note_batch(self, batch: FileBatch) -> None:
        """Record what other programs did to the notes of a batch."""
        files = (*batch.touched, *(write.file for write in batch.writes))
        written = self._unseen.written if self._unseen else {}
        notes = {row.path: row.hash for row in files if row.source == "memory" and written.get(row.path) != row.hash}
        removed = [path for source, path in batch.removed if source == "memory"]
        if self._is_on and (notes or removed):
            self._record(notes, removed)

    def finish(self) -> None:
        """Note in the index that the history is complete, inside the caller's transaction."""
        value: Any = None
        if self._is_on and self.problems:
            value = _NEVER if self._is_first else _INCOMPLETE
        elif self._is_on:
            try:
                unseen = self._get_unseen()
                machine = unseen.history.own_log().removeprefix(_CHANGES).removesuffix(".jsonl")
                value = [machine, unseen.compared.offset]
            except KeptError:
                value = None
        if self._state != value:
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
            from kept.notes.history.note_history import NoteHistory
            from kept.notes.history.unseen_changes import UnseenChanges

            config = self.reader.config
            history = NoteHistory(config, self.reader.workspace, self.reader.clock)
            self._unseen = UnseenChanges(history, max_bytes=config.memory_search.max_file_bytes)
        return self._unseen

"""`Memory.history`: who changed which note, and undo."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from kept.base.limits import require_number
from kept.notes.history.note_history import Author, HistoryRecorder, NoteHistory, open_recorder, python_author, utc_text

if TYPE_CHECKING:
    from kept.notes.history.note_history import NoteChange
    from kept.notes.history.undo import UndoResult
    from kept.search.query_dates import When


class MemoryHistory(NoteHistory):
    """History of the notes: who changed what, when and why, and what was there before."""

    def changes(
        self,
        note: str | os.PathLike[str] | None = None,
        *,
        since: When | None = None,
        by: str | None = None,
        session: str | None = None,
        max_results: int | None = None,
    ) -> tuple[NoteChange, ...]:
        """Return the changes of all notes, or of one, newest first. ``by`` is an agent, tool, person or client."""
        require_number("max_results", max_results, 1, None, whole=True)
        path = None if note is None else self.workspace.locate(os.fspath(note))
        changes = self.iter_changes(since=self._utc_text(since), path=path, by=by, session=session)
        return tuple(islice(changes, max_results))

    def undo(
        self,
        change: str | Iterable[str] | None = None,
        *,
        session: str | None = None,
        since: When | None = None,
        by: str | None = None,
        author: Author | None = None,
        why: str = "",
        dry_run: bool = False,
    ) -> UndoResult:
        """Take back a change by its id, several of them, or all that the filters select; by default the last one that
        Kept made. Later changes of other lines stay. Raise NoteConflict, and change nothing, if a later change touched
        the same lines."""
        from kept.notes.history.undo import select_by_id, select_changes, undo_changes

        if change is None:
            changes = select_changes(self, since=self._utc_text(since), by=by, session=session)
        else:
            changes = select_by_id(self, [change] if isinstance(change, str) else list(change))
        by_whom, max_bytes = author or python_author(self.config), self.config.memory_search.max_file_bytes
        return undo_changes(self, changes, author=by_whom, max_bytes=max_bytes, why=why, dry_run=dry_run)

    def open_recorder(self, author: Author | None = None, *, why: str = "") -> HistoryRecorder | None:
        """Return the recorder for changes by an author, or None if the history is off."""
        return open_recorder(self.config, self.workspace, self.clock, author or python_author(self.config), why=why)

    def _utc_text(self, when: When | None) -> str | None:
        from kept.search.query_dates import find_when

        ms = find_when(when, now=self.clock.now())
        return None if ms is None else utc_text(dt.datetime.fromtimestamp(ms / 1000, dt.UTC))

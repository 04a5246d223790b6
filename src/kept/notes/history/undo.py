"""Take changes back. Either all of them are taken back or, if a later change is in the way, none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from kept.base.values import frozen
from kept.errors import NoteConflict, NoteNotFound, NotFound
from kept.notes.history.line_changes import LinesOverlap, take_back
from kept.notes.history.note_history import Author, HistoryRecorder, NoteChange, NoteEdit, NoteHistory, commit_notes
from kept.storage.contract import retried


@frozen
class UndoResult:
    changes: tuple[NoteChange, ...]
    """Changes that are taken back, newest first."""
    steps: tuple[NoteEdit, ...]
    """What is written to take them back."""
    recorded: tuple[NoteChange, ...] = ()
    """Changes that took them back; empty if nothing was written."""
    degraded: tuple[str, ...] = ()


# selecting


def select_by_id(history: NoteHistory, ids: Sequence[str]) -> list[NoteChange]:
    """Return the changes with these ids, or beginnings of ids, newest first. Raise NotFound."""
    changes = _with_parts(history, history.find_changes(ids))
    for change in changes:
        if change.is_undone:
            raise NotFound(f"The change {change.id[:8]} was taken back already.")
        if change.is_forgotten:
            hint = "Nothing was changed, and what was forgotten does not come back."
            raise NoteConflict(f"{change.path}: the text of change {change.id[:8]} was forgotten.", hint=hint)
    return changes


def select_changes(
    history: NoteHistory,
    *,
    since: str | None = None,
    by: str | None = None,
    session: str | None = None,
) -> list[NoteChange]:
    """Return the changes to take back, newest first. Without a filter, the last one that Kept made.

    Of several changes, those that were taken back already are left out, together with what took them back.
    """
    changes = history.iter_changes(since=since, by=by, session=session)
    if since is None and by is None and session is None:
        # Another program's edits and renames have no author.
        kinds = ("undo", "by_hand", "forget")
        by_kept = (entry for entry in changes if entry.kind not in kinds and entry.by != Author())
        return _with_parts(history, [*islice(filter(_can_undo, by_kept), 1)])
    window = [entry for entry in changes if entry.kind != "forget"]
    ids = {entry.id for entry in window}
    return [entry for entry in window if _can_undo(entry) and not (entry.undoes and ids.issuperset(entry.undoes))]


def _with_parts(history: NoteHistory, changes: list[NoteChange]) -> list[NoteChange]:
    """Return changes with the earlier ones that they are a part of: half a replacement is not taken back."""
    ids = {change.id for change in changes}
    wanted = [change.part_of for change in changes if change.part_of and change.part_of not in ids]
    return [*changes, *(change for change in history.find_changes(wanted) if _can_undo(change))] if wanted else changes


def _can_undo(change: NoteChange) -> bool:
    return not change.is_undone and not change.is_forgotten


# planning


class _UndoPlanner:
    """Contents of the notes while changes are taken back, one after another."""

    def __init__(self, history: NoteHistory, max_bytes: int) -> None:
        self._history = history
        self._max_bytes = max_bytes
        self.present: dict[str, bytes | None] = {}
        self.planned: dict[str, bytes | None] = {}
        self.undoes: dict[str, list[str]] = {}

    def content(self, path: str) -> bytes | None:
        if path not in self.planned:
            workspace = self._history.workspace
            workspace.require_own(workspace.locate(path), path)
            try:
                content = workspace.read(path, max_bytes=self._max_bytes).raw
            except NoteNotFound:
                content = None
            self.present[path] = self.planned[path] = content
        return self.planned[path]

    def put(self, path: str, content: bytes | None, change: NoteChange) -> None:
        self.planned[path] = content
        self.undoes.setdefault(path, []).append(change.id)

    def take_back(self, change: NoteChange) -> None:
        current = self.content(change.path)
        if change.was is not None:
            if current is None or self.content(change.was) is not None:
                raise _conflict(change, f"there is a note {change.was} again" if current else "the note is gone")
            self.put(change.was, current, change)
            self.put(change.path, None, change)
            return
        before, after = self._history.read_version(change.before), self._history.read_version(change.after)
        if current == after:
            self.put(change.path, before, change)
        elif current is None or after is None:
            raise _conflict(change, "a later change removed the note" if current is None else "the note exists again")
        else:
            try:
                rest = take_back(before or b"", after, current)
            except LinesOverlap as exc:
                raise _conflict(change, f"a later change touched the same lines, such as “{exc.text}”") from None
            self.put(change.path, None if before is None and not rest.strip() else rest, change)

    def edits(self) -> list[NoteEdit]:
        """Return the notes to write, those with a new content before those to remove."""
        changed = [path for path, content in self.planned.items() if content != self.present[path]]
        removed = [path for path in changed if self.planned[path] is None]
        edits: list[NoteEdit] = []
        for path in sorted(changed, key=removed.__contains__):
            before, after, was = self.present[path], self.planned[path], None
            if before is None:
                was = next((old for old in removed if self.present[old] == after), None)
            if was is not None:
                removed.remove(was)
                before = after
            if path in removed or after is not None:
                edits.append(NoteEdit(path, before, after, "undo", was, tuple(self.undoes[path])))
        return edits


def _conflict(change: NoteChange, reason: str) -> NoteConflict:
    hint = "Nothing was changed. Take back the later change first, or edit the note."
    return NoteConflict(f"{change.path}: change {change.id[:8]} cannot be taken back: {reason}.", hint=hint)


# applying


def undo_changes(
    history: NoteHistory,
    changes: Sequence[NoteChange],
    *,
    author: Author,
    max_bytes: int,
    why: str = "",
    dry_run: bool = False,
) -> UndoResult:
    """Take changes back, the newest first, in one commit.

    Raise NoteConflict, and change nothing, if later changes are in the way.
    """
    history.workspace.require()
    degraded = [
        f"{change.path}: a part of change {change.id[:8]} was forgotten, and does not come back."
        for change in changes
        if change.forgotten
    ]

    @retried
    def undo() -> UndoResult:
        planner = _UndoPlanner(history, max_bytes)
        for change in changes:
            planner.take_back(change)
        edits = planner.edits()
        if dry_run:
            return UndoResult(tuple(changes), tuple(edits), degraded=tuple(degraded))
        recorder = HistoryRecorder(history, author, why)
        recorded, notices = commit_notes(history.workspace, edits, recorder)
        return UndoResult(tuple(changes), tuple(edits), recorded, (*degraded, *notices))

    return undo()

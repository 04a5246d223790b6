"""Take changes back. Either all of them are taken back or, if a later change is in the way, none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from kept.base.durable import sync_folder, write_atomic
from kept.base.values import frozen
from kept.errors import NoteConflict, NoteNotFound, NotFound, WriteFailed
from kept.notes.change_recorder import Author
from kept.notes.history.line_changes import LinesOverlap, take_back
from kept.notes.history.note_change import NoteChange
from kept.notes.history.note_history import NoteHistory
from kept.notes.opened import OpenWorkspace
from kept.notes.workspace import writing_to

LOCK_WAIT_S = 10.0


@frozen
class UndoStep:
    """A note to write or, if ``after`` is None, to remove. ``was`` is its present path if it gets its old one back."""

    path: str
    before: bytes | None
    after: bytes | None
    undoes: tuple[str, ...]
    was: str | None = None


@frozen
class UndoResult:
    changes: tuple[NoteChange, ...]
    """Changes that are taken back, newest first."""
    steps: tuple[UndoStep, ...]
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
        last = (entry for entry in changes if _can_undo(entry) and _is_by_kept(entry))
        return _with_parts(history, [entry for entry in (next(last, None),) if entry is not None])
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


def _is_by_kept(change: NoteChange) -> bool:
    """Return whether Kept made a change that can be taken back. Another program's edits and renames have no author."""
    return change.kind not in ("undo", "by_hand", "forget") and change.by != Author()


# planning


class _UndoPlanner:
    """Contents of the notes while changes are taken back, one after another."""

    def __init__(self, history: NoteHistory, opened: OpenWorkspace, max_bytes: int) -> None:
        self._history = history
        self._opened = opened
        self._max_bytes = max_bytes
        self.present: dict[str, bytes | None] = {}
        self.planned: dict[str, bytes | None] = {}
        self.undoes: dict[str, list[str]] = {}

    def content(self, path: str) -> bytes | None:
        if path not in self.planned:
            workspace = self._history.workspace
            absolute = workspace.locate(path)
            workspace.require_own(absolute, path)
            try:
                content = self._opened.read(absolute, max_bytes=self._max_bytes).raw
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

    def steps(self) -> list[UndoStep]:
        """Return the notes to write, those with a new content before those to remove."""
        changed = [path for path, content in self.planned.items() if content != self.present[path]]
        removed = [path for path in changed if self.planned[path] is None]
        steps: list[UndoStep] = []
        for path in changed:
            content = self.planned[path]
            if content is None:
                continue
            is_new = self.present[path] is None
            was = next((old for old in removed if is_new and self.present[old] == content), None)
            if was is not None:
                removed.remove(was)
            steps.append(UndoStep(path, self.present[path], content, tuple(self.undoes[path]), was))
        return steps + [UndoStep(path, self.present[path], None, tuple(self.undoes[path])) for path in removed]


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
    """Take changes back, the newest first. Raise NoteConflict, and change nothing, if later changes are in the way."""
    workspace = history.workspace
    workspace.require()
    with (
        writing_to(workspace, wait_s=LOCK_WAIT_S),
        OpenWorkspace(workspace) as opened,
    ):
        planner = _UndoPlanner(history, opened, max_bytes)
        for change in changes:
            planner.take_back(change)
        steps = planner.steps()
        if dry_run:
            return UndoResult(tuple(changes), tuple(steps), degraded=tuple(_without_forgotten(changes)))
        recorded: list[NoteChange] = []
        degraded = _without_forgotten(changes)
        for step in steps:
            recorder = history.recorder(author, why=why, undoes=step.undoes)
            before = step.after if step.was else step.before
            with recorder.writing(step.path, before, step.after, kind="undo", was=step.was):
                _apply(opened, history, step)
            recorded += recorder.changes
            degraded += recorder.notices
    return UndoResult(tuple(changes), tuple(steps), tuple(recorded), tuple(degraded))


def _without_forgotten(changes: Sequence[NoteChange]) -> list[str]:
    """Return a notice for each change that is taken back without a part of its text."""
    return [
        f"{change.path}: a part of change {change.id[:8]} was forgotten, and does not come back."
        for change in changes
        if change.forgotten
    ]


def _apply(opened: OpenWorkspace, history: NoteHistory, step: UndoStep) -> None:
    absolute = history.workspace.locate(step.path)
    if step.after is None:
        _remove(opened, absolute)
        return
    write_atomic(absolute, step.after, dir_fd=opened.folder_to_write(absolute))
    if step.was is not None:
        _remove(opened, history.workspace.locate(step.was))


def _remove(opened: OpenWorkspace, absolute: str) -> None:
    try:
        folder = opened.folder_of(absolute)
        with suppress(FileNotFoundError):
            os.unlink(os.path.basename(absolute), dir_fd=folder)
        sync_folder(folder)
    except OSError as exc:
        raise WriteFailed(f"{absolute}: could not be removed ({exc.strerror}).") from exc

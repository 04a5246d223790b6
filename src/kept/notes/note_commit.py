"""Writes notes: one commit has the notes and the lines of the history that tell who changed them, and why.

Callers read notes and plan edits, without writing anything; a preview is a plan that is not committed. If another
process was faster, they plan again: see `retried` in `storage.contract`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kept.base.digest import digest_bytes
from kept.base.values import frozen
from kept.errors import KeptError, LeaseLost, LockBusy, StorageConflict, WriteUnfinished
from kept.notes.history.note_history import Author, ChangeKind, NoteChange, NoteHistory, last_state, state_after
from kept.storage.contract import ABSENT, Change, Move, Remove, Write, version_of

if TYPE_CHECKING:
    from kept.base.clock import Clock
    from kept.config import Config
    from kept.notes.workspace import Workspace


@frozen
class NoteEdit:
    """A note as it was read, and as it should be. None stands for a note that does not exist."""

    path: str
    before: bytes | None
    after: bytes | None
    kind: ChangeKind
    was: str | None = None
    """Present path of a note that gets another one."""
    undoes: tuple[str, ...] = ()
    """Ids of the changes that it takes back."""
    is_part: bool = False
    """True if it is taken back together with the edit before it."""
    modified_ns: int = 0
    """Time of a note that is copied from elsewhere."""

    def to_change(self) -> Change:
        expected = ABSENT if self.before is None else version_of(self.before)
        if self.was is not None:
            return Move(self.was, self.path, expected)
        if self.after is None:
            return Remove(self.path, expected)
        return Write(self.path, self.after, expected, modified_ns=self.modified_ns)


@frozen
class HistoryRecorder:
    """Records the changes of one author in the history."""

    history: NoteHistory
    by: Author
    why: str = ""

    def plan(self, edits: Sequence[NoteEdit]) -> tuple[list[NoteChange], list[Change]]:
        """Return the changes that edits make, and what to commit for them."""
        history = self.history
        log = history.own_log()
        end = history.storage.logs.end(log)
        lines: list[NoteChange] = []
        changes: list[NoteChange] = []
        for edit in edits:
            path = edit.was or edit.path
            old, new = (None if content is None else digest_bytes(content) for content in (edit.before, edit.after))
            known = history.find_last(path)
            # Another program has written the note, or it is older than the history.
            if (known or old) and not any(state_after(change, path) == old for change in known):
                kind: ChangeKind = "by_hand" if known else "baseline"
                lines.append(history.new_change(path, last_state(known, path), old, kind=kind))
            part_of = changes[-1].id if edit.is_part and changes else None
            more = {"by": self.by, "why": self.why, "was": edit.was, "undoes": edit.undoes, "part_of": part_of}
            changes.append(history.new_change(edit.path, old, new, kind=edit.kind, **more))
            lines.append(changes[-1])
        contents = [content for edit in edits for content in (edit.before, edit.after) if content is not None]
        return changes, history.plan(lines, contents, log, end)


def open_recorder(
    config: Config, workspace: Workspace, clock: Clock, author: Author, *, why: str = ""
) -> HistoryRecorder | None:
    """Return the recorder for changes by an author, or None if the settings turn the history off."""
    if not config.agent.history.enabled:
        return None
    return HistoryRecorder(NoteHistory(config, workspace, clock), author, why)


def python_author(config: Config) -> Author:
    """Return the author of changes by a program that names none."""
    return Author(config.agent_id, tool="python")


@frozen
class Committed:
    changes: tuple[NoteChange, ...] = ()
    """Changes that the history has."""
    notices: tuple[str, ...] = ()


def commit_notes(
    workspace: Workspace,
    edits: Sequence[NoteEdit],
    recorder: HistoryRecorder | None,
    *,
    also: Callable[[Sequence[NoteChange]], Sequence[Change]] = lambda changes: (),
) -> Committed:
    """Write notes and their history, with what ``also`` returns for the recorded changes. Raise StorageConflict.

    A history that cannot be written never stops a write: then the notes are written alone, with a notice.
    """
    notes = [edit.to_change() for edit in edits]
    if recorder is None:
        workspace.storage.commit(_ordered([*also(()), *notes]))
        return Committed()
    try:
        changes, recorded = recorder.plan(edits)
        workspace.storage.commit(_ordered([*recorded, *also(changes), *notes]))
        return Committed(tuple(changes))
    except (StorageConflict, LockBusy, LeaseLost, WriteUnfinished):  # which say nothing of the history
        raise
    except KeptError as exc:
        workspace.storage.commit(_ordered([*also(()), *notes]))
        return Committed(
            notices=tuple(f"The change of {edit.path} is not in the history: {exc.message}" for edit in edits)
        )


def _ordered(changes: list[Change]) -> list[Change]:
    """Return what is added first, then the notes, and last what is removed: a storage that fails on the way can take
    back additions."""
    return sorted(changes, key=lambda change: isinstance(change, Remove))

"""Copies the notes of another workspace, unless there is a note of that name. Existing notes are never changed; only
an empty template of Kept gives way.

Files that become part of a system prompt are copied only on request: notes are data, these are instructions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from kept.base.durable import write_atomic
from kept.base.limits import utf8_path
from kept.base.records import Problem
from kept.base.values import frozen
from kept.errors import KeptError, PathRefused
from kept.notes.change_recorder import ChangeRecorder, recording
from kept.notes.note_writer import LOCK_WAIT_S
from kept.notes.opened import OpenWorkspace
from kept.notes.templates import is_untouched_template
from kept.notes.workspace import (
    MEMORY_FOLDER,
    ROOT_NOTES,
    Workspace,
    find_arrival_fault,
    is_indexed_name,
    is_markdown,
    is_persons_own,
    writing_to,
)

_LONG_TERM_NAMES = ("MEMORY.md", "memory.md")


@frozen
class NotesAdopted:
    copied: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    """Existing notes with the same bytes."""
    conflicts: tuple[str, ...] = ()
    """Existing notes with another text, which stayed."""
    left_out: tuple[str, ...] = ()
    """Markdown files that are not notes, so no search would find them."""
    held_back: tuple[str, ...] = ()
    """Files for a system prompt that were not requested."""
    problems: tuple[Problem, ...] = ()


def is_workspace(folder: str) -> bool:
    names = (*ROOT_NOTES, MEMORY_FOLDER)
    return os.path.isdir(folder) and any(os.path.exists(os.path.join(folder, name)) for name in names)


def adopt_notes(
    workspace: Workspace,
    folder: str,
    *,
    max_bytes: int,
    instructions: bool = False,
    recorder: ChangeRecorder | None = None,
    is_forgotten: Callable[[str, str], bool] = lambda text, name: False,
) -> NotesAdopted:
    """Copy the notes of a folder, byte for byte and with their times. Create the workspace if it is missing.

    ``instructions`` copies the files of a system prompt too, such as SOUL.md and USER.md. A note with text that was
    forgotten (``is_forgotten``) is left out and named.
    """
    outcomes: dict[str, list[str]] = {"copied": [], "same": [], "conflicts": [], "left_out": [], "held_back": []}
    problems: list[Problem] = []
    workspace.make()
    root = os.path.abspath(folder)
    with OpenWorkspace(Workspace.at(root)) as source, OpenWorkspace(workspace) as target:
        copying = _Copying(source, root, target, workspace, max_bytes, instructions, recorder, is_forgotten)
        for name in sorted(_iter_markdown(source, root, problems)):
            if not is_indexed_name(name):
                outcomes["left_out"].append(utf8_path(name))
                continue
            if fault := find_arrival_fault(workspace.locate(name), name):
                problems.append(Problem(utf8_path(os.path.join(folder, name)), fault))
                continue
            try:
                outcomes[copying.adopt(name)].append(utf8_path(name))
            except KeptError as exc:
                problems.append(Problem(utf8_path(os.path.join(folder, name)), exc.message))
    return NotesAdopted(**{kind: tuple(names) for kind, names in outcomes.items()}, problems=tuple(problems))


@frozen
class _Copying:
    """Copies notes from one open workspace to another."""

    source: OpenWorkspace
    folder: str
    target: OpenWorkspace
    workspace: Workspace
    max_bytes: int
    instructions: bool
    recorder: ChangeRecorder | None
    is_forgotten: Callable[[str, str], bool]

    def adopt(self, name: str) -> str:
        """Copy a note. Return the field of `NotesAdopted` that it belongs to."""
        note = self.source.read(os.path.join(self.folder, *name.split("/")), max_bytes=self.max_bytes)
        if self.is_forgotten(note.text, name):
            raise PathRefused("it has something that you forgot here")
        absolute = self._target_path(name)
        if is_persons_own(name) and not self.instructions:
            return self._compare(absolute, note.raw) or "held_back"
        with writing_to(self.workspace, wait_s=LOCK_WAIT_S):
            outcome = self._compare(absolute, note.raw)
            if outcome is None:
                present = self.target.find_state(absolute)
                before = self.target.read(absolute, max_bytes=self.max_bytes).raw if present else None
                with recording(self.recorder, self.workspace.cite(absolute), before, note.raw, kind="import"):
                    folder = self.target.folder_to_write(absolute)
                    write_atomic(absolute, note.raw, dir_fd=folder, mtime_ns=note.mtime_ns)
            return outcome or "copied"

    def _target_path(self, name: str) -> str:
        """Return the path to copy to. Long-term memory has two names; a workspace that has one of them keeps it."""
        names = _LONG_TERM_NAMES if name in _LONG_TERM_NAMES else (name,)
        paths = [self.workspace.locate(candidate) for candidate in names]
        return next((path for path in paths if self.target.find_state(path)), self.workspace.locate(name))

    def _compare(self, absolute: str, raw: bytes) -> str | None:
        if self.target.find_state(absolute) is None:
            return None
        present = self.target.read(absolute, max_bytes=self.max_bytes).raw
        if present == raw:
            return "same"
        # An empty template of ours is not a note that anybody wrote.
        return None if is_untouched_template(os.path.basename(absolute), present) else "conflicts"


def _iter_markdown(source: OpenWorkspace, root: str, problems: list[Problem]) -> Iterator[str]:
    """Yield the Markdown files at the top and below memory/. Report links, and do not follow them."""
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            entries = source.list_folder(folder)
        except OSError as exc:
            problems.append(Problem(utf8_path(folder), f"cannot be read ({exc.strerror})"))
            continue
        for name, is_folder, is_link in entries:
            path = os.path.join(folder, name)
            if is_folder:
                waiting += [path] if folder != root or name == MEMORY_FOLDER else []
            elif is_markdown(name) and is_link:
                problems.append(Problem(utf8_path(path), "is a symbolic link, which is not followed"))
            elif is_markdown(name):
                yield os.path.relpath(path, root).replace(os.sep, "/")

"""Notes of another workspace, taken in where there is none of that name. What is here is never touched.

Files that stand in a system prompt are copied only when the person asks for them: notes are data, these are not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from kept.durable import write_atomic
from kept.errors import KeptError
from kept.lock import locked
from kept.records import Problem
from kept.values import frozen
from kept.workspace.notes import LOCK_WAIT_S
from kept.workspace.opened import OpenWorkspace
from kept.workspace.prompt_files import is_persons_own
from kept.workspace.workspace import MEMORY_FOLDER, ROOT_NOTES, Workspace, is_indexed_name, is_markdown

_ONE_OF = ("MEMORY.md", "memory.md")


@frozen
class NotesAdopted:
    copied: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    """Here already, to the byte."""
    conflicts: tuple[str, ...] = ()
    """Here already with another text, which stayed."""
    left_out: tuple[str, ...] = ()
    """Markdown that is not a note: it would not be searched."""
    held_back: tuple[str, ...] = ()
    """Files that stand in a system prompt, which nobody asked for."""
    problems: tuple[Problem, ...] = ()


def is_workspace(folder: str) -> bool:
    names = (*ROOT_NOTES, MEMORY_FOLDER)
    return os.path.isdir(folder) and any(os.path.exists(os.path.join(folder, name)) for name in names)


def adopt_notes(
    workspace: Workspace, folder: str, *, max_bytes: int, dry_run: bool = False, instructions: bool = False
) -> NotesAdopted:
    """Copies the notes of a folder, byte for byte and with their times, into a workspace that is made where it is
    missing. ``instructions`` copies SOUL.md, AGENTS.md and USER.md too."""
    found: dict[str, list[str]] = {"copied": [], "same": [], "conflicts": [], "left_out": [], "held_back": []}
    problems: list[Problem] = []
    if not dry_run:
        workspace.make()
    root = os.path.abspath(folder)
    with OpenWorkspace(Workspace.at(root)) as source, OpenWorkspace(workspace) as target:
        copying = _Copying(source, root, target, workspace, max_bytes, instructions)
        for name in sorted(_iter_markdown(source, root, problems)):
            if not is_indexed_name(name):
                found["left_out"].append(_shown(name))
                continue
            try:
                found[copying.adopt(name, dry_run=dry_run)].append(_shown(name))
            except KeptError as exc:
                problems.append(Problem(_shown(os.path.join(folder, name)), exc.message))
    return NotesAdopted(**{kind: tuple(names) for kind, names in found.items()}, problems=tuple(problems))


@frozen
class _Copying:
    """From one open workspace to another."""

    source: OpenWorkspace
    folder: str
    target: OpenWorkspace
    workspace: Workspace
    max_bytes: int
    instructions: bool

    def adopt(self, name: str, *, dry_run: bool) -> str:
        note = self.source.read(os.path.join(self.folder, *name.split("/")), max_bytes=self.max_bytes)
        absolute = self._place_for(name)
        if is_persons_own(name) and not self.instructions:
            return self._compare(absolute, note.raw) or "held_back"
        if dry_run:
            return self._compare(absolute, note.raw) or "copied"
        with locked(self.workspace.root, wait_s=LOCK_WAIT_S, purpose="writing to this workspace"):
            outcome = self._compare(absolute, note.raw)
            if outcome is None:
                folder = self.target.folder_to_write(absolute)
                write_atomic(absolute, note.raw, dir_fd=folder, mtime_ns=note.mtime_ns)
            return outcome or "copied"

    def _place_for(self, name: str) -> str:
        """Long-term memory has two names; of a workspace that has one of them, that one is meant."""
        names = _ONE_OF if name in _ONE_OF else (name,)
        places = [self.workspace.locate(one) for one in names]
        return next((one for one in places if self.target.find_state(one)), self.workspace.locate(name))

    def _compare(self, absolute: str, raw: bytes) -> str | None:
        state = self.target.find_state(absolute)
        if state is None:
            return None
        if state.st_size != len(raw):
            return "conflicts"
        return "same" if self.target.read(absolute, max_bytes=self.max_bytes).raw == raw else "conflicts"


def _iter_markdown(source: OpenWorkspace, root: str, problems: list[Problem]) -> Iterator[str]:
    """Markdown at the top and below memory/. Links are named, not followed."""
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            entries = _list(source, folder)
        except OSError as exc:
            problems.append(Problem(_shown(folder), f"cannot be read ({exc.strerror})"))
            continue
        for name, is_folder, is_link in entries:
            path = os.path.join(folder, name)
            if is_folder:
                waiting += [path] if folder != root or name == MEMORY_FOLDER else []
            elif is_markdown(name) and is_link:
                problems.append(Problem(_shown(path), "is a symbolic link, which is not followed"))
            elif is_markdown(name):
                yield os.path.relpath(path, root).replace(os.sep, "/")


def _list(source: OpenWorkspace, folder: str) -> list[tuple[str, bool, bool]]:
    """Names, and whether they are folders or links."""
    handle = source.open_to_list(folder)
    try:
        with os.scandir(handle) as listing:
            return [(entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in listing]
    finally:
        os.close(handle)


def _shown(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "replace")

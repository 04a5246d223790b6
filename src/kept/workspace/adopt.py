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
from kept.workspace.files import read_note
from kept.workspace.notes import LOCK_WAIT_S
from kept.workspace.paths import MEMORY_FOLDER, ROOT_NOTES, Workspace, is_indexed_name, is_markdown
from kept.workspace.prompt_files import is_persons_own

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
    for name in sorted(_iter_markdown(folder, problems)):
        if not is_indexed_name(name):
            found["left_out"].append(_shown(name))
            continue
        try:
            outcome = _adopt(workspace, folder, name, max_bytes, dry_run=dry_run, instructions=instructions)
            found[outcome].append(_shown(name))
        except KeptError as exc:
            problems.append(Problem(_shown(os.path.join(folder, name)), exc.message))
    return NotesAdopted(**{kind: tuple(names) for kind, names in found.items()}, problems=tuple(problems))


def _adopt(workspace: Workspace, folder: str, name: str, max_bytes: int, *, dry_run: bool, instructions: bool) -> str:
    note = read_note(os.path.join(folder, name), max_bytes=max_bytes)
    target = workspace.locate(name, must_exist=False)
    if name in _ONE_OF:
        target = next(
            (one for one in (os.path.join(workspace.root, other) for other in _ONE_OF) if os.path.lexists(one)), target
        )
    if is_persons_own(name) and not instructions:
        return _compare(target, note.raw, max_bytes) or "held_back"
    if dry_run:
        return _compare(target, note.raw, max_bytes) or "copied"
    with locked(workspace.root, wait_s=LOCK_WAIT_S, purpose="writing to this workspace"):
        outcome = _compare(target, note.raw, max_bytes)
        if outcome is None:
            write_atomic(target, note.raw)
            os.utime(target, ns=(note.mtime_ns, note.mtime_ns))
        return outcome or "copied"


def _compare(target: str, raw: bytes, max_bytes: int) -> str | None:
    if not os.path.lexists(target):
        return None
    return "same" if read_note(target, max_bytes=max_bytes).raw == raw else "conflicts"


def _iter_markdown(folder: str, problems: list[Problem]) -> Iterator[str]:
    """Markdown at the top and below memory/. Links are named, not followed."""

    def say(error: OSError) -> None:
        problems.append(Problem(_shown(str(error.filename)), f"cannot be read ({error.strerror})"))

    for place, folders, names in os.walk(folder, onerror=say):
        if place == folder:
            folders[:] = [one for one in folders if one == MEMORY_FOLDER]
        for name in filter(is_markdown, names):
            path = os.path.join(place, name)
            if os.path.islink(path):
                problems.append(Problem(_shown(path), "is a symbolic link, which is not followed"))
            else:
                yield os.path.relpath(path, folder).replace(os.sep, "/")


def _shown(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "replace")

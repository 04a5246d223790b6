"""Copies the notes of another workspace, unless there is a note of that name. Existing notes are never changed; only
an empty template of Kept gives way.

Files that become part of a system prompt are copied only on request: notes are data, these are instructions.

`TEMPLATES` are the notes that `kept init` creates in an empty workspace, `full_templates` those of `kept init --full`:
the files of `new_notes`, which do not have their names there, so that no agent that works in this folder takes them for
its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from kept.base.limits import utf8_path
from kept.base.records import Problem
from kept.base.values import frozen
from kept.errors import KeptError, PathRefused
from kept.notes.history.note_history import HistoryRecorder, NoteEdit, commit_notes
from kept.notes.scan import scan_workspace
from kept.notes.survey import find_left_out
from kept.notes.workspace import (
    LONG_TERM,
    MEMORY_FOLDER,
    ROOT_NOTES,
    Workspace,
    find_arrival_fault,
    is_persons_own,
    list_names,
)
from kept.storage.contract import retried
from kept.storage.open import open_folder


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
    return not {*ROOT_NOTES, MEMORY_FOLDER}.isdisjoint(list_names(open_folder(folder)))


def adopt_notes(
    workspace: Workspace,
    folder: str,
    *,
    max_bytes: int,
    instructions: bool = False,
    recorder: HistoryRecorder | None = None,
    is_forgotten: Callable[[str, str], bool] = lambda text, name: False,
) -> NotesAdopted:
    """Copy the notes of a folder, byte for byte and with their times. Create the workspace if it is missing.

    ``instructions`` copies the files of a system prompt too, such as SOUL.md and USER.md. A note with text that was
    forgotten (``is_forgotten``) is left out and named.
    """
    outcomes: dict[str, list[str]] = {"copied": [], "same": [], "conflicts": [], "held_back": []}
    workspace.storage.make()
    source = Workspace.at(folder)
    scan, left_out = scan_workspace(source, max_bytes=max_bytes), find_left_out(source)
    links = (entry.path for entry in left_out if entry.reason == "link")
    problems = [*scan.problems, *(Problem(link, "is a symbolic link, which is not followed") for link in links)]

    @retried
    def adopt(name: str) -> str:
        """Copy a note. Return the field of `NotesAdopted` that it belongs to."""
        note = source.read(name, max_bytes=max_bytes)
        forgotten = "it has something that you forgot here" if is_forgotten(note.text, name) else None
        if fault := find_arrival_fault(name) or forgotten:
            raise PathRefused(fault)
        target, present = _find_target(workspace, name, max_bytes)
        if present == note.raw:
            return "same"
        # An empty template of ours is not a note that anybody wrote.
        if present is not None and not is_untouched_template(target, present):
            return "conflicts"
        if is_persons_own(name) and not instructions:
            return "held_back"
        edit = NoteEdit(target, present, note.raw, "import", modified_ns=note.mtime_ns)
        commit_notes(workspace, [edit], recorder)
        return "copied"

    for file in scan.files:
        try:
            outcomes[adopt(file.path)].append(utf8_path(file.path))
        except KeptError as exc:
            problems.append(Problem(file.path, exc.message))
    return NotesAdopted(
        **{kind: tuple(names) for kind, names in outcomes.items()},
        left_out=tuple(entry.path for entry in left_out if entry.is_missed),
        problems=tuple(Problem(utf8_path(os.path.join(folder, each.path)), each.reason) for each in problems),
    )


def _find_target(workspace: Workspace, name: str, max_bytes: int) -> tuple[str, bytes | None]:
    """Return the name to copy to, and what is there. Long-term memory has two names; a workspace keeps its own."""
    for target in map(workspace.locate, LONG_TERM if name in LONG_TERM else (name,)):
        if workspace.find(target):
            return target, workspace.read(target, max_bytes=max_bytes).raw
    return name, None


# templates

TEMPLATES = {"MEMORY.md": "# Memory\n", "USER.md": "# User\n"}
_FOLDER = os.path.join(os.path.dirname(__file__), "new_notes")


def full_templates() -> dict[str, str]:
    """Return the name and the text of each note of `kept init --full`."""
    texts = {}
    for name in sorted(os.listdir(_FOLDER)):
        with open(os.path.join(_FOLDER, name), encoding="utf-8") as file:
            texts[f"{name.removesuffix('.txt')}.md"] = file.read()
    return texts


def is_untouched_template(name: str, raw: bytes) -> bool:
    """Return whether a note holds nothing but a template of its name, or nothing at all."""
    name = "MEMORY.md" if name == "memory.md" else name
    texts = [templates[name].strip().encode() for templates in (TEMPLATES, full_templates()) if name in templates]
    return bool(texts) and raw.strip() in (b"", *texts)

"""Copies the notes of another workspace, unless there is a note of that name. Existing notes are never changed; only
an empty template of Kept gives way.

Files that become part of a system prompt are copied only on request: notes are data, these are instructions.

`TEMPLATES` are the notes that `kept init` creates in an empty workspace, `full_templates` those of `kept init --full`:
the files of `new_notes`, which do not have their names there, so that no agent that works in this folder takes them for
its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial

from kept.base.limits import utf8_path
from kept.base.records import Problem
from kept.base.values import frozen
from kept.errors import KeptError, PathRefused, WorkspaceError
from kept.notes.history.note_history import HistoryRecorder, NoteEdit, commit_notes
from kept.notes.workspace import (
    LONG_TERM,
    MEMORY_FOLDER,
    ROOT_NOTES,
    Workspace,
    find_arrival_fault,
    is_markdown,
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
    outcomes: dict[str, list[str]] = {"copied": [], "same": [], "conflicts": [], "left_out": [], "held_back": []}
    problems: list[Problem] = []
    workspace.storage.make()
    source = Workspace.at(folder)

    def report(path: str, reason: str) -> None:
        problems.append(Problem(utf8_path(os.path.join(folder, path)), reason))

    def adopt(name: str) -> str:
        """Copy a note. Return the field of `NotesAdopted` that it belongs to."""
        if not source.is_indexed(name):
            return "left_out"
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

    for name in _list_markdown(source, report):
        try:
            outcomes[retried(partial(adopt, name))].append(utf8_path(name))
        except KeptError as exc:
            report(name, exc.message)
    return NotesAdopted(**{kind: tuple(names) for kind, names in outcomes.items()}, problems=tuple(problems))


def _find_target(workspace: Workspace, name: str, max_bytes: int) -> tuple[str, bytes | None]:
    """Return the name to copy to, and what is there. Long-term memory has two names; a workspace keeps its own."""
    for target in map(workspace.locate, LONG_TERM if name in LONG_TERM else (name,)):
        if workspace.find(target):
            return target, workspace.read(target, max_bytes=max_bytes).raw
    return name, None


def _list_markdown(source: Workspace, report: Callable[[str, str], None]) -> list[str]:
    """Return the Markdown files at the top and below memory/. Report links, and do not follow them."""
    named: list[str] = []

    def choose(folder: str, names: Mapping[str, bool]) -> list[str]:
        lead = f"{folder}/" if folder else ""
        files = [name for name, is_folder in names.items() if not is_folder and is_markdown(name)]
        named.extend(lead + name for name in files)
        folders = (name for name, is_folder in names.items() if is_folder)
        return [*files, *(name for name in folders if folder or name == MEMORY_FOLDER)]

    def refuse(path: str, error: WorkspaceError) -> None:
        report(path, error.message)

    plain = [info.path for info in source.storage.documents.list(choose=choose, on_refused=refuse)]
    for name in sorted({*named}.difference(plain)):
        report(name, "is a symbolic link, which is not followed")
    return plain


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

"""Copies that programs make when two machines changed the same note, and the marks that git leaves in one.

    note.sync-conflict-20261103-091500-ABCDEFG.md      Syncthing
    note (Ada's conflicted copy 2026-11-03).md         Dropbox, Nextcloud, Obsidian Sync
    note (SFConflict ada@example.com 2026-11-03).md    Seafile

A copy is a note like any other: what it alone has must stay findable. It is named wherever problems are, and a search
puts it after the note that it is a copy of.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from kept.base.records import Problem, SourceFile
from kept.notes.workspace import MEMORY_FOLDER, ROOT_NOTES, Workspace

_NAMED = (
    r"(?P<stem>.+)\.sync-conflict-\d{8}-\d{6}(?:-[A-Z0-9]+)?(?P<end>\.[^./]+)",
    r"(?P<stem>.+?) ?\((?:[^()]*?(?:conflicted copy|conflict copy|in Konflikt stehende Kopie|copie en conflit"
    r"|copia en conflicto|copia in conflitto)|SFConflict )[^()]*\)(?P<end>\.[^./]+)",
)
_LONGEST_STEM = 200


def find_original(path: str) -> str | None:
    """Return the note that a file is a conflict copy of by its name, or None."""
    for pattern in _NAMED if "onfli" in path else ():
        if match := re.fullmatch(pattern, path, re.IGNORECASE | re.DOTALL):
            note = match["stem"] + match["end"]
            own = note.removeprefix(f"{MEMORY_FOLDER}/")
            return own if own in ROOT_NOTES else note  # see `name_copy`
    return None


def name_copy(workspace: Workspace, path: str, stamp: str, digest: str) -> str:
    """Return the name for a copy of a note, as Syncthing would give it: by a time (20261118-091500) and the
    hash of its text."""
    folder, slash, name = path.rpartition("/")
    if workspace.layout == "kept" and not folder:  # only below memory/ is it a note
        folder, slash = MEMORY_FOLDER, "/"
    stem, ending = os.path.splitext(name)
    stem = stem.encode()[:_LONGEST_STEM].decode("utf-8", "ignore")
    return f"{folder}{slash}{stem}.sync-conflict-{stamp}-{digest[:7].upper()}{ending}"


def find_conflicts(files: Iterable[SourceFile]) -> list[Problem]:
    """Return the conflict copies among files."""
    originals = ((file.path, find_original(file.path)) for file in files if file.source == "memory")
    return [
        Problem(path, f"conflict copy of {note}: two machines changed it. Merge them, and delete the copy")
        for path, note in originals
        if note is not None
    ]


def find_merge_marks(text: str) -> str | None:
    """Return a warning if a text has the marks of a merge that git did not finish, or None."""
    start, is_divided = 0, False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("<<<<<<< "):
            start, is_divided = number, False
        elif start and line == "=======":
            is_divided = True
        elif is_divided and line.startswith(">>>>>>> "):
            return f"line {start} has the marks of a merge that git did not finish (<<<<<<<); both versions are in it"
    return None

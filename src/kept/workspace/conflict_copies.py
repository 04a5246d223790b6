"""Copies that programs make when two machines changed the same note, and the marks that git leaves in one.

    note.sync-conflict-20261103-091500-ABCDEFG.md      Syncthing
    note (Ada's conflicted copy 2026-11-03).md         Dropbox, Nextcloud, Obsidian Sync
    note (SFConflict ada@example.com 2026-11-03).md    Seafile
    note 2.md                                          iCloud, if it is nearly the same as note.md

A copy is a note like any other: what it alone has must stay findable. It is named wherever problems are, and a search
puts it after the note that it is a copy of.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from kept.errors import WorkspaceError
from kept.records import Problem, SourceFile
from kept.workspace.opened import OpenWorkspace
from kept.workspace.scan import may_be_copy
from kept.workspace.workspace import MEMORY_FOLDER, Workspace

NEARLY_SAME = 0.85
"""Share of common words from which on 'note 2.md' is a copy of 'note.md'."""
_NAMED = (
    r"(?P<stem>.+)\.sync-conflict-\d{8}-\d{6}(?:-[A-Z0-9]+)?(?P<end>\.[^./]+)",
    r"(?P<stem>.+?) ?\((?:[^()]*?(?:conflicted copy|conflict copy|in Konflikt stehende Kopie|copie en conflit"
    r"|copia en conflicto|copia in conflitto)|SFConflict )[^()]*\)(?P<end>\.[^./]+)",
)
_NUMBERED = r"(?P<stem>.+) [2-9](?P<end>\.md)"
_MAX_SIZE_RATIO = 1.5
_LONGEST_STEM = 200
_WORD = r"\w+"


def find_original(path: str) -> str | None:
    """Return the note that a file is a conflict copy of by its name, or None."""
    for pattern in _NAMED if "onfli" in path else ():
        if match := re.fullmatch(pattern, path, re.IGNORECASE | re.DOTALL):
            return match["stem"] + match["end"]
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


def find_numbered_original(path: str) -> str | None:
    """Return 'note.md' for 'note 2.md', or None. Only their texts show whether one is a copy of the other."""
    match = re.fullmatch(_NUMBERED, path, re.DOTALL)
    return match["stem"] + match["end"] if match else None


def are_nearly_same(text: str, other: str) -> bool:
    words, others = (frozenset(re.findall(_WORD, side.lower())) for side in (text, other))
    shared = len(words & others)
    return shared >= NEARLY_SAME * (len(words) + len(others) - shared)


def find_conflicts(workspace: Workspace, files: Iterable[SourceFile], *, max_bytes: int) -> list[Problem]:
    """Return the conflict copies among files. Only notes that may be numbered copies are read."""
    paths = {file.path: file for file in files if file.source == "memory"}
    problems: list[Problem] = []
    with OpenWorkspace(workspace) as opened:
        for path, file in paths.items():
            if not may_be_copy(path):
                continue
            original = find_original(path)
            if original is None:
                other = paths.get(find_numbered_original(path) or "")
                original = other.path if other and _is_copy(opened, file, other, max_bytes) else None
            if original is not None:
                problems.append(Problem(path, _named(original)))
    return problems


def _named(original: str) -> str:
    return f"conflict copy of {original}: two machines changed it. Merge them, and delete the copy"


def _is_copy(opened: OpenWorkspace, file: SourceFile, original: SourceFile, max_bytes: int) -> bool:
    small, large = sorted((file.size, original.size))
    if large > _MAX_SIZE_RATIO * small:
        return False
    try:
        texts = (opened.read_found(note.absolute, max_bytes=max_bytes).text for note in (file, original))
        return are_nearly_same(*texts)
    except WorkspaceError:
        return False


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

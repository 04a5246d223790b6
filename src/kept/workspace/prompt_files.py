"""The files of a workspace that are part of a system prompt, and those that tools may write.

Everything that a tool writes may have been suggested by others: by a note, a web page, a message in a group.
So a tool must not write what a model later reads as instructions. Tools write MEMORY.md, which is shown as data, notes
below memory/, and a vault's daily notes. All other files belong to the person, who changes them with an editor or
`kept add --to`.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from kept.errors import PathRefused

if TYPE_CHECKING:
    from kept.workspace.workspace import Workspace

INSTRUCTING = ("SOUL.md", "AGENTS.md")
"""Shown verbatim: the person's own instructions."""
LONG_TERM = ("MEMORY.md", "memory.md")
INFORMING = ("USER.md", *LONG_TERM)
"""Shown as data."""
MEMORY_FOLDER = "memory"

_OTHERS = (
    *("IDENTITY.md", "TOOLS.md", "HEARTBEAT.md", "BOOTSTRAP.md"),
    *("AGENTS.override.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md"),
)
"""Instructions for other agents that work in the same folder."""
PERSONS_OWN = (*INSTRUCTING, "USER.md", *_OTHERS)


def is_persons_own(path: str) -> bool:
    """Return whether a file belongs to the person, being part of a system prompt, in any folder and spelling."""
    return _fold(path.replace("\\", "/").rpartition("/")[2]) in _folded()


def require_tool_may_write(workspace: Workspace, absolute: str, shown: str) -> None:
    """Raise PathRefused unless a tool may write the note at ``absolute``."""
    relative = os.path.relpath(absolute, workspace.root).replace(os.sep, "/")
    if is_persons_own(relative) or _is_linked_to_persons_own(workspace.root, absolute):
        raise refusal(shown)
    if relative in LONG_TERM or relative.startswith(f"{MEMORY_FOLDER}/") or _is_daily_note(workspace, relative):
        return
    daily = ", daily notes" if workspace.layout == "vault" else ""
    raise PathRefused(f"{shown}: tools write only MEMORY.md{daily} and notes below memory/.")


def _is_daily_note(workspace: Workspace, relative: str) -> bool:
    """Return whether a note is in a vault's own place for daily notes, under the name of a day."""
    if workspace.layout == "kept" or relative.startswith("../"):
        return False
    from kept.workspace.daily import get_daily_notes

    daily = get_daily_notes(workspace)
    found = daily.find_day(relative)
    return found is not None and (not daily.folder or relative.startswith(f"{daily.folder}/"))


def refusal(shown: str) -> PathRefused:
    return PathRefused(
        f"{shown}: tools cannot write files that are part of a system prompt; write to 'memory' (MEMORY.md) or to a "
        "daily note instead, or ask the person to change it.",
        hint="",
    )


def _is_linked_to_persons_own(root: str, absolute: str) -> bool:
    """Return whether a path is another name of such a file: by a link, or on a file system that ignores case."""
    target = _identity(absolute)
    return target is not None and any(target == _identity(os.path.join(root, name)) for name in PERSONS_OWN)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return None
    return state.st_dev, state.st_ino


@cache
def _folded() -> frozenset[str]:
    return frozenset(map(_fold, PERSONS_OWN))


def _fold(name: str) -> str:
    """Return a name as the most lenient file system compares it.

    Case, width, invisible characters, trailing dots and spaces, and the name of an NTFS stream are dropped.
    """
    import unicodedata

    plain = unicodedata.normalize("NFKC", name.partition(":")[0]).casefold()
    visible = (char for char in plain if unicodedata.category(char) not in ("Cc", "Cf"))
    return "".join(visible).strip(" .")

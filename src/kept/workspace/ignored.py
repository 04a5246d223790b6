"""Patterns of .gitignore and .keptignore, which leave files and folders of a vault out.

They apply as in git: to the folder that the file is in and to those below it. The last pattern that matches decides,
one of a deeper folder before one above it, and .keptignore after .gitignore. A note in a folder that is left out cannot
be brought back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from kept.errors import NoteNotFound, WorkspaceError
from kept.workspace.opened import OpenWorkspace
from kept.workspace.workspace import IGNORE_FILES, Workspace

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_MAX_BYTES = 256_000
_MAX_STARS = 4
"""Limit of '*' between two slashes. A pattern becomes a regular expression, which may take the length of a name to the
power of its '*'; the file may be a stranger's."""

_Chain = tuple[tuple[int, "GitIgnoreSpec"], ...]
"""Patterns for one folder, those of its parents first. The number is the length of the path before which they apply."""


def is_ignored(workspace: Workspace, relative: str) -> bool:
    """Return whether patterns leave out the note of this path, or a folder that it is in."""
    folder = workspace.root
    *folders, name = relative.split("/")
    with OpenWorkspace(workspace) as opened:
        rules = IgnoreRules(opened, workspace.root, report=lambda path, reason: None)
        for part in folders:
            rules.enter(folder, IGNORE_FILES)
            if rules.is_ignored(folder, part, is_folder=True):
                return True
            folder = os.path.join(folder, part)
        rules.enter(folder, IGNORE_FILES)
        return rules.is_ignored(folder, name, is_folder=False)


class IgnoreRules:
    """The patterns of the folders that a walk has entered. ``report`` is called with a path and a reason."""

    def __init__(self, opened: OpenWorkspace, root: str, *, report: Callable[[str, str], None]) -> None:
        self._opened = opened
        self._root = root
        self._report = report
        self._chains: dict[str, _Chain] = {}

    def enter(self, folder: str, names: Iterable[str]) -> None:
        """Read the ignore files of a folder. Parents are entered first."""
        chain = () if folder == self._root else self._chains.get(os.path.dirname(folder), ())
        text = "\n".join(
            filter(None, (self._read(os.path.join(folder, name)) for name in IGNORE_FILES if name in names))
        )
        spec = _compile(text) if text else None
        if spec is not None:
            chain = (*chain, (len(folder) + 1, spec))
        if chain:
            self._chains[folder] = chain

    def is_ignored(self, folder: str, name: str, *, is_folder: bool) -> bool:
        """Return whether a file or folder is left out. Its parents are not."""
        chain = self._chains.get(folder)
        if not chain:
            return False
        path = f"{folder}{os.sep}{name}{'/' if is_folder else ''}"
        for start, spec in reversed(chain):
            is_included = spec.check_file(path[start:]).include
            if is_included is not None:
                return is_included
        return False

    def _read(self, path: str) -> str:
        try:
            text = self._opened.read_found(path, max_bytes=_MAX_BYTES).text
        except NoteNotFound:
            return ""
        except WorkspaceError as exc:
            self._report(path, f"its patterns are not applied ({exc.message})")
            return ""
        for number, line in enumerate(text.split("\n"), 1):
            if _has_too_many_stars(line):
                self._report(path, f"line {number} is not applied: more than {_MAX_STARS} '*' in one part of a pattern")
        return text


@lru_cache(maxsize=256)
def _compile(text: str) -> GitIgnoreSpec | None:
    """Return the patterns of a text, or None if it has none. The library is imported only if there are some."""
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    lines = [line for line in lines if not _has_too_many_stars(line)]
    if not lines:
        return None
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError:  # git ignores a pattern that it cannot read
        return GitIgnoreSpec.from_lines(filter(_is_pattern, lines))


def _is_pattern(line: str) -> bool:
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _has_too_many_stars(line: str) -> bool:
    return line.count("*") > _MAX_STARS and any(part.count("*") > _MAX_STARS for part in line.split("/"))

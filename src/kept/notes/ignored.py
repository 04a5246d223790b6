"""Patterns of .gitignore and .keptignore, which leave files and folders of a vault out.

They apply as in git: to the folder that the file is in and to those below it. The last pattern that matches decides,
one of a deeper folder before one above it, and .keptignore after .gitignore. A note in a folder that is left out cannot
be brought back. Templates that Obsidian names are left out too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from kept.base.values import frozen
from kept.errors import NoteNotFound, WorkspaceError
from kept.notes.opened import OpenWorkspace
from kept.notes.vault import OBSIDIAN_FOLDER, read_templates
from kept.notes.workspace import IGNORE_FILES, Workspace

_MAX_BYTES = 256_000
_MAX_STARS = 4
"""Limit of '*' between two slashes. A pattern becomes a regular expression, which may take the length of a name to the
power of its '*'; the file may be a stranger's."""


@frozen
class Patterns:
    """Patterns of one folder, the last one first: it decides. Each has a regular expression, and whether what matches
    is left out."""

    for_folders: tuple[tuple[re.Pattern[str], bool], ...]
    for_files: tuple[tuple[re.Pattern[str], bool], ...]
    """Those that can match the name of a note."""

    def decide(self, path: str, *, is_folder: bool) -> bool | None:
        """Return whether a path, relative to the folder, is left out; None if no pattern matches it.

        The path of a folder ends in '/'.
        """
        for regex, is_left_out in self.for_folders if is_folder else self.for_files:
            if any(_is_exact(match, path) for match in regex.finditer(path)):
                return is_left_out
        return None


def _is_exact(match: re.Match[str], path: str) -> bool:
    """Return whether a pattern matches a path itself, not a folder above it, which was decided when it was entered.

    The library marks the slash after the part that matches. Without a mark, a match that ends with the slash of the
    path is that of `folder/**`, which matches everything in the folder and not the folder itself.
    """
    if match.lastgroup is not None:
        return match.start(match.lastgroup) == len(path) - 1
    return not (match.end() == len(path) and path.endswith("/"))


_Chain = tuple[tuple[int, Patterns], ...]
"""Patterns for one folder, those of its parents first. The number is the length of the path before which they apply."""


def is_ignored(workspace: Workspace, relative: str) -> bool:
    """Return whether patterns leave out the note of this path, or a folder that it is in."""
    folder = workspace.root
    *folders, name = relative.split("/")
    with OpenWorkspace(workspace) as opened:
        rules = IgnoreRules(opened, workspace, report=lambda path, reason: None)
        for part in folders:
            rules.enter(folder, (*IGNORE_FILES, OBSIDIAN_FOLDER))
            if rules.is_ignored(folder, part, is_folder=True):
                return True
            folder = os.path.join(folder, part)
        rules.enter(folder, (*IGNORE_FILES, OBSIDIAN_FOLDER))
        return rules.is_ignored(folder, name, is_folder=False)


class IgnoreRules:
    """The patterns of the folders that a walk has entered. ``report`` is called with a path and a reason."""

    def __init__(self, opened: OpenWorkspace, workspace: Workspace, *, report: Callable[[str, str], None]) -> None:
        self._opened = opened
        self._workspace = workspace
        self._root = workspace.root
        self._templates: frozenset[str] = frozenset()
        self._endings = workspace.endings
        self._report = report
        self._chains: dict[str, _Chain] = {}

    def enter(self, folder: str, names: Iterable[str]) -> bool:
        """Read the ignore files of a folder, and return whether patterns apply to it. Parents are entered first."""
        if folder == self._root and OBSIDIAN_FOLDER in names:
            self._templates = read_templates(self._workspace)
        chain = () if folder == self._root else self._chains.get(os.path.dirname(folder), ())
        text = "\n".join(
            filter(None, (self._read(os.path.join(folder, name)) for name in IGNORE_FILES if name in names))
        )
        patterns = _compile(text, self._endings) if text else None
        if patterns is not None:
            chain = (*chain, (len(folder) + 1, patterns))
        if chain:
            self._chains[folder] = chain
        return bool(chain or self._templates)

    def may_match_notes(self, folder: str) -> bool:
        """Return whether a pattern for this folder can match the name of a note. Most can only match other files."""
        has_template = any(os.path.dirname(os.path.join(self._root, path)) == folder for path in self._templates)
        return has_template or any(patterns.for_files for _, patterns in self._chains.get(folder, ()))

    def is_ignored(self, folder: str, name: str, *, is_folder: bool) -> bool:
        """Return whether a file or folder is left out. Its parents are not."""
        if self._templates and self._workspace.cite(f"{folder}{os.sep}{name}") in self._templates:
            return True
        chain = self._chains.get(folder)
        if not chain:
            return False
        path = f"{folder}{os.sep}{name}{'/' if is_folder else ''}"
        for start, patterns in reversed(chain):
            is_left_out = patterns.decide(path[start:], is_folder=is_folder)
            if is_left_out is not None:
                return is_left_out
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
def _compile(text: str, endings: tuple[str, ...]) -> Patterns | None:
    """Return the patterns of a text, or None if it has none. The library is imported only if there are some."""
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    known = [(line, *pattern) for line in reversed(lines) for pattern in _read_pattern(line)]
    if not known:
        return None
    return Patterns(
        for_folders=tuple((regex, is_left_out) for _, regex, is_left_out in known),
        for_files=tuple(
            (regex, is_left_out) for line, regex, is_left_out in known if _may_match_note(line.rstrip(), endings)
        ),
    )


def _read_pattern(line: str) -> list[tuple[re.Pattern[str], bool]]:
    """Return the regular expression of a line and whether it leaves out. Empty if git could not read it either."""
    if _has_too_many_stars(line):
        return []
    from pathspec import GitIgnoreSpec

    try:
        patterns = GitIgnoreSpec.from_lines([line]).patterns
    except ValueError:
        return []
    return [(item.regex, item.include) for item in patterns if item.regex is not None and item.include is not None]


def _may_match_note(line: str, endings: tuple[str, ...]) -> bool:
    """Return whether a pattern can match the name of a note. Most cannot: `build/`, `*.log`."""
    if line.endswith("/"):
        return False
    literal = re.split(r"[*?\]\\]", line)[-1].lower()
    return any(ending.endswith(literal) or literal.endswith(ending) for ending in endings)


def _has_too_many_stars(line: str) -> bool:
    return line.count("*") > _MAX_STARS and any(part.count("*") > _MAX_STARS for part in line.split("/"))

"""Vaults: folders of Markdown that another program manages, and where those programs keep daily notes.

Read from `.obsidian/daily-notes.json`, from the settings of the plug-in Periodic Notes, and from `logseq/config.edn`.
Nothing of it is trusted: a vault may be a stranger's repository.

Patterns of .gitignore and .keptignore leave files and folders of a vault out. They apply as in git: to the folder that
the file is in and to those below it. The last pattern that matches decides, one of a deeper folder before one above it,
and .keptignore after .gitignore. A note in a folder that is left out cannot be brought back. Templates that Obsidian
names and copies that Logseq makes are left out too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import lru_cache
from typing import Any

from kept.base.limits import as_dict, as_list, is_utf8, text_or_empty
from kept.errors import NoteNotFound, WorkspaceError
from kept.notes.daily import DAILY_NOTE, DEFAULT_DAILY_NOTES, ISO, DailyNotes, FormatRefused, parse_format
from kept.notes.workspace import IGNORE_FILES, Workspace, has_control_characters, is_visible, list_names, show_path
from kept.storage.contract import Storage

OBSIDIAN = "Obsidian"
OBSIDIAN_FOLDER = ".obsidian"
LOGSEQ = "Logseq"
_LOGSEQ_FOLDER = "logseq"
_LOGSEQ_COPIES = frozenset(("logseq/bak", "logseq/version-files"))
_LOGSEQ_DATES = {"yyyy": "YYYY", "yy": "YY", "dd": "DD", "d": "D", "do": "Do", "EEEE": "dddd", "EEE": "ddd", "E": "ddd"}
"""Parts of a date as Logseq writes them, which are others for moment.js."""
_PERIODIC = "periodic-notes"
_MAX_BYTES = 1_000_000
_MAX_CHARS = 200


def find_program(storage: Storage) -> str:
    """Return the program that manages a vault, or an empty text."""
    names = list_names(storage)
    if names.get(OBSIDIAN_FOLDER):
        return OBSIDIAN
    return LOGSEQ if names.get("journals") and (names.get("pages") or names.get(_LOGSEQ_FOLDER)) else ""


def read_daily_notes(workspace: Workspace) -> DailyNotes:
    """Return where a vault keeps its daily notes: as its program says, else in memory/."""
    program = find_program(workspace.storage)
    if program == LOGSEQ:
        # Without comments, which may have settings that are switched off. A text may have a semicolon.
        text = re.sub(r'("(?:[^"\\]|\\.)*")|;[^\n]*', r"\1", _read(workspace, f"{_LOGSEQ_FOLDER}/config.edn"))
        named = dict(re.findall(r':(journals-directory|journal/file-name-format)\s+"([^"\\]*)"', text))
        date = named.get("journal/file-name-format") or "yyyy_MM_dd"
        date = re.sub(r"y+|do|d+|E+", lambda match: _LOGSEQ_DATES.get(match[0], match[0]), date)
        return _checked(LOGSEQ, named.get("journals-directory") or "journals", date)
    if not program:
        return DEFAULT_DAILY_NOTES
    plugins = _read_json(workspace, "community-plugins.json")
    settings = _periodic(workspace) if isinstance(plugins, list) and _PERIODIC in plugins else None
    settings = settings or _read_json(workspace, "daily-notes.json")
    if isinstance(settings, dict):
        return _checked(OBSIDIAN, text_or_empty(settings.get("folder")), text_or_empty(settings.get("format")) or ISO)
    # Without settings, Obsidian puts daily notes at the top: so does Kept if there are some.
    is_at_top = any(map(DAILY_NOTE.fullmatch, list_names(workspace.storage)))
    return DailyNotes("", ISO, OBSIDIAN) if is_at_top else DEFAULT_DAILY_NOTES


def read_templates(workspace: Workspace) -> frozenset[str]:
    """Return the folders and files that Obsidian names as templates, relative to the vault."""
    settings = [
        ("templates.json", "folder", ""),
        ("plugins/templater-obsidian/data.json", "templates_folder", ""),
        ("daily-notes.json", "template", ".md"),
    ]
    paths = set()
    for name, key, ending in settings:
        path = text_or_empty(as_dict(_read_json(workspace, name)).get(key)).strip().strip("/")
        paths.add(f"{path.removesuffix(ending)}{ending}" if path else "")
    return frozenset(paths - {""})


def _periodic(workspace: Workspace) -> dict[str, Any] | None:
    """Return the settings of Periodic Notes for days, in its old or new format, or None if they are off."""
    data = as_dict(_read_json(workspace, f"plugins/{_PERIODIC}/data.json"))
    days = [as_dict(item).get("day") for item in as_list(data.get("calendarSets"))]
    return next((item for item in map(as_dict, [*days, data.get("daily")]) if item.get("enabled")), None)


def _read_json(workspace: Workspace, name: str) -> Any:
    try:
        return json.loads(_read(workspace, f"{OBSIDIAN_FOLDER}/{name}"))
    except (ValueError, RecursionError):
        return None


def _read(workspace: Workspace, path: str) -> str:
    """Return the text of a settings file in the vault, or nothing if it cannot be read."""
    try:
        return workspace.read(path, max_bytes=_MAX_BYTES).text
    except WorkspaceError:
        return ""


# checking


def _checked(program: str, folder: str, text: str) -> DailyNotes:
    """Return the place if Kept can use it. Otherwise return Kept's own, with the reason."""
    folder = folder.strip().strip("/")
    try:
        if text != ISO:
            parse_format(text)
    except FormatRefused as exc:
        reason = f"{exc} in the format '{show_path(text)}'"
    else:
        path = f"{folder}/{text}" if folder else text
        parts = path.split("/")
        is_name = len(path) <= _MAX_CHARS and "\\" not in path and not has_control_characters(path) and is_utf8(path)
        if is_name and all(part and is_visible(part.lstrip("[")) for part in parts):
            return DailyNotes(folder, text, program)
        reason = f"notes in '{show_path(path)}' would not be found"
    where = f"{DEFAULT_DAILY_NOTES.folder}/{DEFAULT_DAILY_NOTES.format}.md"
    return DailyNotes(problem=f"{program}'s settings for daily notes are not used: {reason}. They go to {where}.")


# what is left out

_MAX_PATTERN_BYTES = 256_000
_MAX_STARS = 4
"""Limit of '*' between two slashes. A pattern becomes a regular expression, which may take the length of a name to the
power of its '*'; the file may be a stranger's."""


_SETTINGS = (*IGNORE_FILES, OBSIDIAN_FOLDER, _LOGSEQ_FOLDER)
_Patterns = tuple[tuple[re.Pattern[str], bool], ...]
"""Patterns of one folder, the last one first: it decides. Each has a regular expression, and whether what matches is
left out."""
_Chain = tuple[tuple[int, _Patterns], ...]
"""Patterns for one folder, those of its parents first. The number is the length of the path before which they apply."""


def _is_exact(match: re.Match[str], path: str) -> bool:
    """Return whether a pattern matches a path itself, not a folder above it, which was decided when it was entered.

    The library marks the slash after the part that matches. Without a mark, a match that ends with the slash of the
    path is that of `folder/**`, which matches everything in the folder and not the folder itself.
    """
    if match.lastgroup is not None:
        return match.start(match.lastgroup) == len(path) - 1
    return not (match.end() == len(path) and path.endswith("/"))


def is_ignored(workspace: Workspace, name: str) -> bool:
    """Return whether patterns leave out the note of this name, or a folder that it is in."""
    folder = ""
    rules = IgnoreRules(workspace)
    *folders, last = name.split("/")
    for part in folders:
        rules.enter(folder, _SETTINGS)
        if rules.is_ignored(folder, part, is_folder=True):
            return True
        folder = f"{folder}/{part}" if folder else part
    rules.enter(folder, _SETTINGS)
    return rules.is_ignored(folder, last, is_folder=False)


class IgnoreRules:
    """The patterns of the folders that a walk has entered. ``report`` is called with a path and a reason."""

    def __init__(self, workspace: Workspace, *, report: Callable[[str, str], None] = lambda path, reason: None) -> None:
        self._workspace = workspace
        self._left_out: frozenset[str] = frozenset()
        self._report = report
        self._chains: dict[str, _Chain] = {}

    def enter(self, folder: str, names: Collection[str]) -> bool:
        """Read the ignore files of a folder, and return whether patterns apply to it. Parents are entered first."""
        if not folder and _LOGSEQ_FOLDER in names:
            self._left_out |= _LOGSEQ_COPIES
        if not folder and OBSIDIAN_FOLDER in names:
            self._left_out |= read_templates(self._workspace)
        chain = self._chains.get(folder.rpartition("/")[0], ()) if folder else ()
        lead = f"{folder}/" if folder else ""
        text = "\n".join(filter(None, (self._read(lead + name) for name in IGNORE_FILES if name in names)))
        if patterns := _compile(text):
            chain = (*chain, (len(lead), patterns))
        if chain:
            self._chains[folder] = chain
        return bool(chain or self._left_out)

    def is_ignored(self, folder: str, name: str, *, is_folder: bool) -> bool:
        """Return whether a file or folder is left out. Its parents are not."""
        path = f"{folder}/{name}" if folder else name
        if path in self._left_out:
            return True
        path += "/" if is_folder else ""
        for start, patterns in reversed(self._chains.get(folder, ())):
            below = path[start:]
            for regex, is_left_out in patterns:
                if any(_is_exact(match, below) for match in regex.finditer(below)):
                    return is_left_out
        return False

    def _read(self, path: str) -> str:
        try:
            text = self._workspace.read(path, max_bytes=_MAX_PATTERN_BYTES).text
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
def _compile(text: str) -> _Patterns:
    """Return the patterns of a text. The library is imported only if there are some."""
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    if not lines:
        return ()
    from pathspec import GitIgnoreSpec

    patterns: list[Any] = []
    for line in reversed(lines):
        with suppress(ValueError):  # git could not read it either
            patterns += [] if _has_too_many_stars(line) else GitIgnoreSpec.from_lines([line]).patterns
    return tuple((item.regex, item.include) for item in patterns if item.regex and item.include is not None)


def _has_too_many_stars(line: str) -> bool:
    return line.count("*") > _MAX_STARS and any(part.count("*") > _MAX_STARS for part in line.split("/"))

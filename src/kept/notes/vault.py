"""Vaults: folders of Markdown that another program manages, and where those programs keep daily notes.

Read from `.obsidian/daily-notes.json`, from the settings of the plug-in Periodic Notes, and from `logseq/config.edn`.
None of it is trusted: a vault may be a stranger's repository.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from kept.base.limits import is_utf8, text_or_empty
from kept.errors import WorkspaceError
from kept.notes.daily import DAILY_NOTE, DEFAULT_DAILY_NOTES, DailyNotes
from kept.notes.date_format import ISO, FormatRefused, parse_format
from kept.notes.opened import OpenWorkspace
from kept.notes.workspace import Workspace, has_control_characters, is_visible

OBSIDIAN = "Obsidian"
LOGSEQ = "Logseq"
OBSIDIAN_FOLDER = ".obsidian"
_PERIODIC = "periodic-notes"
_LOGSEQ_SETTINGS = "logseq/config.edn"
_LOGSEQ_FOLDER = "journals"
_LOGSEQ_FORMAT = "yyyy_MM_dd"
_EDN_COMMENT = r'("(?:[^"\\]|\\.)*")|;[^\n]*'
_MAX_BYTES = 1_000_000
_MAX_CHARS = 200


def find_program(root: str) -> str:
    """Return the program that manages a vault, or an empty text."""
    if os.path.isdir(os.path.join(root, OBSIDIAN_FOLDER)):
        return OBSIDIAN
    has_pages = all(os.path.isdir(os.path.join(root, name)) for name in (_LOGSEQ_FOLDER, "pages"))
    return LOGSEQ if has_pages or os.path.isfile(os.path.join(root, _LOGSEQ_SETTINGS)) else ""


def read_daily_notes(workspace: Workspace) -> DailyNotes:
    """Return where a vault keeps its daily notes: as its program says, else in memory/."""
    program = find_program(workspace.root)
    if program == OBSIDIAN:
        return _read_obsidian(workspace)
    return _read_logseq(workspace) if program == LOGSEQ else DEFAULT_DAILY_NOTES


# Obsidian


def _read_obsidian(workspace: Workspace) -> DailyNotes:
    plugins = _read_json(workspace, "community-plugins.json")
    settings = _periodic(workspace) if isinstance(plugins, list) and _PERIODIC in plugins else None
    settings = settings or _read_json(workspace, "daily-notes.json")
    if isinstance(settings, dict):
        return _checked(OBSIDIAN, text_or_empty(settings.get("folder")), text_or_empty(settings.get("format")) or ISO)
    # Without settings, Obsidian puts daily notes at the top: so does Kept if there are some.
    return DailyNotes("", ISO, OBSIDIAN) if _has_daily_notes(workspace.root) else DEFAULT_DAILY_NOTES


def read_templates(workspace: Workspace) -> frozenset[str]:
    """Return the folders and files that Obsidian names as templates, relative to the vault."""
    settings = [
        ("templates.json", "folder", ""),
        ("plugins/templater-obsidian/data.json", "templates_folder", ""),
        ("daily-notes.json", "template", ".md"),
    ]
    paths = set()
    for name, key, ending in settings:
        values = _read_json(workspace, name)
        path = text_or_empty(values.get(key)).strip().strip("/") if isinstance(values, dict) else ""
        paths.add(f"{path.removesuffix(ending)}{ending}" if path else "")
    return frozenset(paths - {""})


def _periodic(workspace: Workspace) -> dict[str, Any] | None:
    """Return the settings of Periodic Notes for days, in its old or new format, or None if they are off."""
    data = _read_json(workspace, f"plugins/{_PERIODIC}/data.json")
    if not isinstance(data, dict):
        return None
    sets = data.get("calendarSets")
    days = [item.get("day") for item in sets if isinstance(item, dict)] if isinstance(sets, list) else []
    candidates = [*days, data.get("daily")]
    return next((item for item in candidates if isinstance(item, dict) and item.get("enabled")), None)


def _read_json(workspace: Workspace, name: str) -> Any:
    try:
        return json.loads(_read(workspace, f"{OBSIDIAN_FOLDER}/{name}"))
    except (ValueError, RecursionError):
        return None


def _has_daily_notes(root: str) -> bool:
    try:
        return any(DAILY_NOTE.fullmatch(name) for name in os.listdir(root))
    except OSError:
        return False


# Logseq


def _read_logseq(workspace: Workspace) -> DailyNotes:
    text = re.sub(_EDN_COMMENT, r"\1", _read(workspace, _LOGSEQ_SETTINGS))
    folder = _edn_text(text, "journals-directory") or _LOGSEQ_FOLDER
    return _checked(LOGSEQ, folder, _from_java(_edn_text(text, "journal/file-name-format") or _LOGSEQ_FORMAT))


def _edn_text(text: str, key: str) -> str:
    match = re.search(rf':{re.escape(key)}\s+"([^"\\]*)"', text)
    return match[1] if match else ""


def _from_java(text: str) -> str:
    """Return a date format of Logseq as one of moment.js: yyyy_MM_dd is YYYY_MM_DD."""
    names = {"E": "ddd", "EE": "ddd", "EEE": "ddd", "EEEE": "dddd", "do": "Do"}
    tokens = r"'([^']*)'|y+|do|d+|E+"
    return re.sub(tokens, lambda match: f"[{match[1]}]" if match[1] else names.get(match[0], match[0].upper()), text)


# checking


def _checked(program: str, folder: str, text: str) -> DailyNotes:
    """Return the place if Kept can use it. Otherwise return Kept's own, with the reason."""
    folder = folder.strip().strip("/")
    try:
        if text != ISO:
            parse_format(text)
    except FormatRefused as exc:
        reason = f"{exc} in the format '{_shown(text)}'"
    else:
        path = f"{folder}/{text}" if folder else text
        if _is_usable(path):
            return DailyNotes(folder, text, program)
        reason = f"notes in '{_shown(path)}' would not be found"
    where = f"{DEFAULT_DAILY_NOTES.folder}/{DEFAULT_DAILY_NOTES.format}.md"
    return DailyNotes(problem=f"{program}'s settings for daily notes are not used: {reason}. They go to {where}.")


def _is_usable(path: str) -> bool:
    if len(path) > _MAX_CHARS or "\\" in path or has_control_characters(path) or not is_utf8(path):
        return False
    return all(part and is_visible(part.lstrip("[")) for part in path.split("/"))


def _shown(text: str) -> str:
    return text if len(text) <= _MAX_CHARS and text.isprintable() else ascii(text[:_MAX_CHARS])[1:-1]


def _read(workspace: Workspace, path: str) -> str:
    """Return the text of a settings file in the vault, or nothing if it cannot be read."""
    with OpenWorkspace(workspace) as opened:
        try:
            return opened.read_found(os.path.join(workspace.root, path), max_bytes=_MAX_BYTES).text
        except WorkspaceError:
            return ""

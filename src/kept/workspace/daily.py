"""The log of a day: memory/2026-11-16.md, and memory/2026-11-16-2.md after the first is full.

A vault has its daily notes where its own settings put them; see `vault.py`.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from functools import lru_cache

from kept.values import frozen
from kept.workspace.workspace import MEMORY_FOLDER, Workspace

DAILY_NOTE = re.compile(r"(?:^|/)(\d{4}-\d{2}-\d{2})(?:-([2-9]|[1-9]\d{1,2}))?\.md$", re.IGNORECASE)
"""Groups: the day, and the number of the part, without one for the first."""
_PART = r"(?:-(?P<part>[2-9]|[1-9]\d{1,2}))?\.md"
_MAX_PARTS = 999
_ISO = "YYYY-MM-DD"


@frozen
class DailyNotes:
    """Folder and file name of daily notes. A note named 2026-11-16.md is a daily note in any folder."""

    folder: str = MEMORY_FOLDER
    """Path in the workspace, empty for the workspace itself."""
    format: str = _ISO
    """Name of a file without its ending, in the format of moment.js. It may have folders."""
    program: str = ""
    """The program whose settings give the folder and the format, or empty."""
    problem: str = ""
    """Reason why the settings of the program are not used, or empty."""

    def name(self, day: dt.date, part: int = 1) -> str:
        """Return the path of a day's note in the workspace."""
        stem = f"{day:%Y-%m-%d}" if self.format == _ISO else self._format(day)
        folder = f"{self.folder}/" if self.folder else ""
        return f"{folder}{stem}{'' if part == 1 else f'-{part}'}.md"

    def find_day(self, path: str) -> tuple[dt.date, int] | None:
        """Return the day of a note and the number of its part, or None if the note is not a daily one."""
        match = DAILY_NOTE.search(path)
        if match:
            try:
                return dt.date.fromisoformat(match[1]), int(match[2] or 1)
            except ValueError:
                return None
        if self.format == _ISO:
            return None
        from kept.workspace.date_format import read_date

        match = _compile(self.folder, self.format).fullmatch(path)
        day = read_date(match) if match else None
        return (day, int(match["part"] or 1)) if match and day else None

    def _format(self, day: dt.date) -> str:
        from kept.workspace.date_format import format_date

        return format_date(self.format, day)


DEFAULT_DAILY_NOTES = DailyNotes()


@lru_cache(maxsize=8)
def _compile(folder: str, text: str) -> re.Pattern[str]:
    from kept.workspace.date_format import date_pattern

    return re.compile((re.escape(f"{folder}/") if folder else "") + date_pattern(text) + _PART)


def get_daily_notes(workspace: Workspace) -> DailyNotes:
    """Return where the daily notes of a workspace are. In a vault, this reads its settings."""
    if workspace.layout == "kept":
        return DEFAULT_DAILY_NOTES
    from kept.workspace.vault import read_daily_notes

    return read_daily_notes(workspace)


def daily_name(workspace: Workspace, day: dt.date) -> str:
    """Return the path of a day's log, whether it exists or not."""
    return next(iter(daily_parts(workspace, day)), "") or get_daily_notes(workspace).name(day)


def daily_parts(workspace: Workspace, day: dt.date, daily: DailyNotes | None = None) -> list[str]:
    """Return the existing files of a day's log, in the order they were written. ``daily`` may be a project's."""
    first = _find_first(workspace, day, daily or get_daily_notes(workspace))
    parts = [first] if first else []
    while parts and len(parts) < _MAX_PARTS:
        name = part_name(parts[0], len(parts) + 1)
        if not os.path.lexists(os.path.join(workspace.root, name)):
            break
        parts.append(name)
    return parts


def part_name(first: str, part: int) -> str:
    """Return the name of a further part of the log whose first part has this name."""
    return f"{first[: -len('.md')]}-{part}.md"


def find_next_part(workspace: Workspace, path: str) -> str | None:
    """Return the part of a daily log that follows ``path``, or None."""
    day_and_part = get_daily_notes(workspace).find_day(path)
    if day_and_part is None:
        return None
    part = day_and_part[1]
    first = path if part == 1 else f"{path[: -len(f'-{part}.md')]}.md"
    after = part_name(first, part + 1)
    return after if os.path.isfile(os.path.join(workspace.root, after)) else None


def _find_first(workspace: Workspace, day: dt.date, daily: DailyNotes) -> str | None:
    """Return the existing first file of a day's log, or None."""
    name = daily.name(day)
    if os.path.lexists(os.path.join(workspace.root, name)):
        return name
    if daily.format == _ISO:
        return None
    from kept.workspace.date_format import has_names

    # Another program may have written the month or the weekday in its own language.
    return _find_sibling(workspace, daily, name, day) if has_names(daily.format) else None


def _find_sibling(workspace: Workspace, daily: DailyNotes, name: str, day: dt.date) -> str | None:
    folder = name.rpartition("/")[0]
    try:
        names = sorted(os.listdir(os.path.join(workspace.root, folder)))
    except OSError:
        return None
    paths = (f"{folder}/{sibling}" if folder else sibling for sibling in names)
    return next((path for path in paths if daily.find_day(path) == (day, 1)), None)

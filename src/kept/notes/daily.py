"""The log of a day: memory/2026-11-16.md. memory/2026-11-16-2.md belongs to the day too.

A vault has its daily notes where its own settings put them; see `vault.py`.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from functools import lru_cache

from kept.base.values import frozen
from kept.notes.workspace import MEMORY_FOLDER, Workspace

_END = r"(?:-(?:[2-9]|[1-9]\d{1,2}))?\.md"
DAILY_NOTE = re.compile(rf"(?:^|/)(\d{{4}}-\d{{2}}-\d{{2}}){_END}$", re.IGNORECASE)
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

    def name(self, day: dt.date) -> str:
        """Return the path of a day's note in the workspace."""
        stem = f"{day:%Y-%m-%d}" if self.format == _ISO else self._format(day)
        folder = f"{self.folder}/" if self.folder else ""
        return f"{folder}{stem}.md"

    def find_day(self, path: str) -> dt.date | None:
        """Return the day of a note, or None if the note is not a daily one."""
        match = DAILY_NOTE.search(path)
        if match:
            try:
                return dt.date.fromisoformat(match[1])
            except ValueError:
                return None
        if self.format == _ISO:
            return None
        from kept.notes.date_format import read_date

        match = _compile(self.folder, self.format).fullmatch(path)
        return read_date(match) if match else None

    def _format(self, day: dt.date) -> str:
        from kept.notes.date_format import format_date

        return format_date(self.format, day)


DEFAULT_DAILY_NOTES = DailyNotes()


@lru_cache(maxsize=8)
def _compile(folder: str, text: str) -> re.Pattern[str]:
    from kept.notes.date_format import date_pattern

    return re.compile((re.escape(f"{folder}/") if folder else "") + date_pattern(text) + _END)


def get_daily_notes(workspace: Workspace) -> DailyNotes:
    """Return where the daily notes of a workspace are. In a vault, this reads its settings."""
    if workspace.layout == "kept":
        return DEFAULT_DAILY_NOTES
    from kept.notes.vault import read_daily_notes

    return read_daily_notes(workspace)


def daily_name(workspace: Workspace, day: dt.date) -> str:
    """Return the path of a day's log, whether it exists or not."""
    return find_daily(workspace, day) or get_daily_notes(workspace).name(day)


def find_daily(workspace: Workspace, day: dt.date, daily: DailyNotes | None = None) -> str | None:
    """Return the path of a day's log, or None if there is none. ``daily`` may be a project's."""
    daily = daily or get_daily_notes(workspace)
    name = daily.name(day)
    if os.path.lexists(os.path.join(workspace.root, name)):
        return name
    if daily.format == _ISO:
        return None
    from kept.notes.date_format import has_names

    # Another program may have written the month or the weekday in its own language.
    return _find_sibling(workspace, daily, name, day) if has_names(daily.format) else None


def _find_sibling(workspace: Workspace, daily: DailyNotes, name: str, day: dt.date) -> str | None:
    folder = name.rpartition("/")[0]
    try:
        names = sorted(os.listdir(os.path.join(workspace.root, folder)))
    except OSError:
        return None
    paths = (f"{folder}/{sibling}" if folder else sibling for sibling in names)
    return next((path for path in paths if daily.find_day(path) == day), None)

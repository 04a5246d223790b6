"""The log of a day: memory/2026-11-16.md. memory/2026-11-16-2.md belongs to the day too.

A vault has its daily notes where its own settings put them; see `vault.py`.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from functools import lru_cache

from kept.base.values import frozen
from kept.errors import PathRefused
from kept.notes.workspace import MEMORY_FOLDER, Workspace, list_names

_END = r"(?:-(?:[2-9]|[1-9]\d{1,2}))?\.md"
DAILY_NOTE = re.compile(rf"(?:^|/)(\d{{4}}-\d{{2}}-\d{{2}}){_END}$", re.IGNORECASE)
ISO = "YYYY-MM-DD"


@frozen
class DailyNotes:
    """Folder and file name of daily notes. A note named 2026-11-16.md is a daily note in any folder."""

    folder: str = MEMORY_FOLDER
    """Path in the workspace, empty for the workspace itself."""
    format: str = ISO
    """Name of a file without its ending, in the format of moment.js. It may have folders."""
    program: str = ""
    """The program whose settings give the folder and the format, or empty."""
    problem: str = ""
    """Reason why the settings of the program are not used, or empty."""

    def name(self, day: dt.date) -> str:
        """Return the path of a day's note in the workspace."""
        stem = f"{day:%Y-%m-%d}" if self.format == ISO else format_date(self.format, day)
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
        if self.format == ISO:
            return None
        match = _compile(self.folder, self.format).fullmatch(path)
        return read_date(match) if match else None


DEFAULT_DAILY_NOTES = DailyNotes()


@lru_cache(maxsize=8)
def _compile(folder: str, text: str) -> re.Pattern[str]:
    return re.compile((re.escape(f"{folder}/") if folder else "") + date_pattern(text) + _END)


def get_daily_notes(workspace: Workspace) -> DailyNotes:
    """Return where the daily notes of a workspace are. In a vault, this reads its settings."""
    if workspace.layout == "kept":
        return DEFAULT_DAILY_NOTES
    from kept.notes.vault import read_daily_notes

    return read_daily_notes(workspace)


def daily_name(workspace: Workspace, day: dt.date, daily: DailyNotes | None = None) -> str:
    """Return the path of a day's log, whether it exists or not. ``daily`` may be a project's."""
    daily = daily or get_daily_notes(workspace)
    # In ISO format, a day has one name: there is nothing to look for.
    return (find_daily(workspace, day, daily) if daily.format != ISO else None) or daily.name(day)


def find_daily(workspace: Workspace, day: dt.date, daily: DailyNotes | None = None) -> str | None:
    """Return the path of a day's log as `daily_name`, or None if there is none."""
    daily = daily or get_daily_notes(workspace)
    name = daily.name(day)
    try:
        if workspace.find(name):
            return name
    except PathRefused:
        return name  # a link, which is refused when it is read
    if daily.format == ISO or not has_names(daily.format):
        return None
    # Another program may have written the month or the weekday in its own language.
    folder, slash, _ = name.rpartition("/")
    siblings = (folder + slash + sibling for sibling in sorted(list_names(workspace.storage, folder)))
    return next((path for path in siblings if daily.find_day(path) == day), None)


# dates in file names, in the format of moment.js that Obsidian's settings use: `DD.MM.YYYY`, `YYYY/MM/YYYY-MM-DD`.
# Names of months and weekdays are written in English. When a name is read, a weekday may be in any language.

_TOKEN = (
    r"\[([^\[]*?)\]|(Mo|MM?M?M?|Do|DDDo|DD?D?D?|ddd?d?|do?|w[ow]?|W[oW]?|Qo?|N+|YY(?:YY){0,2}|y+o?|gg(?:gg)?|GG(?:GG)?"
    r"|e|E|a|A|hh?|HH?|kk?|mm?|ss?|S+|x|X|zz?|ZZ?)"
)
"""The tokens of moment.js, supported or not; any other character stands for itself."""
_MONTHS = "January February March April May June July August September October November December".split()
_WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
"""Not those of `calendar`, which follow the locale of the process."""
_WORD = r"[^\W\d_]+\.?"

_TOKENS: dict[str, tuple[str, str, Callable[[dt.date], str]]] = {
    "YYYY": ("year", r"\d{4}", lambda day: f"{day.year:04}"),
    "YY": ("short_year", r"\d{2}", lambda day: f"{day.year % 100:02}"),
    "MMMM": ("month_name", _WORD, lambda day: _MONTHS[day.month - 1]),
    "MMM": ("month_name", _WORD, lambda day: _MONTHS[day.month - 1][:3]),
    "MM": ("month", r"\d{2}", lambda day: f"{day.month:02}"),
    "M": ("month", r"\d{1,2}", lambda day: str(day.month)),
    "DD": ("day", r"\d{2}", lambda day: f"{day.day:02}"),
    "D": ("day", r"\d{1,2}", lambda day: str(day.day)),
    "Do": ("ordinal", r"\d{1,2}(?:st|nd|rd|th)", lambda day: f"{day.day}{_ordinal(day.day)}"),
    "dddd": ("", _WORD, lambda day: _WEEKDAYS[day.weekday()]),
    "ddd": ("", _WORD, lambda day: _WEEKDAYS[day.weekday()][:3]),
    "dd": ("", _WORD, lambda day: _WEEKDAYS[day.weekday()][:2]),
    "GGGG": ("", r"\d{2,4}", lambda day: f"{day.isocalendar().year:04}"),
    "WW": ("", r"\d{2,4}", lambda day: f"{day.isocalendar().week:02}"),
}
"""The meaning of each token, its regular expression, and what writes it."""


class FormatRefused(Exception):
    """The format has a part that is not supported, or does not name a day."""


@lru_cache(maxsize=32)
def parse_format(text: str) -> tuple[tuple[str, str], ...]:
    """Return the parts of the format of a name: ("YYYY", "") for a token, ("", "text") for text. Raise FormatRefused,
    also if it does not name a day."""
    parts: list[tuple[str, str]] = []
    at = 0
    for match in re.finditer(_TOKEN, text):
        parts += [("", text[at : match.start()])] if match.start() > at else []
        at = match.end()
        if match[2] and match[2] not in _TOKENS:
            raise FormatRefused(f"'{match[2]}' is not supported")
        parts.append((match[2], "") if match[2] else ("", match[1]))
    parts += [("", text[at:])] if at < len(text) else []
    groups = {_TOKENS[token][0] for token, _ in parts if token}
    has_year = bool({"year", "short_year"} & groups)
    has_day = {"month", "month_name"} & groups and {"day", "ordinal"} & groups
    if not has_year or not has_day:
        raise FormatRefused("it does not name the year, the month and the day")
    return tuple(parts)


def format_date(text: str, day: dt.date) -> str:
    """Return a day in a format. Raise FormatRefused."""
    return "".join(_TOKENS[token][2](day) if token else plain for token, plain in parse_format(text))


def has_names(text: str) -> bool:
    """Return whether a format writes months or weekdays in words, which another program may write in its language."""
    return any(token and _TOKENS[token][1] == _WORD for token, _ in parse_format(text))


@lru_cache(maxsize=32)
def date_pattern(text: str) -> str:
    """Return the regular expression of a format. Raise FormatRefused. A token that is repeated has the same value."""
    seen: dict[str, str] = {}
    parts: list[str] = []
    for token, plain in parse_format(text):
        group, pattern = _TOKENS[token][:2] if token else ("", re.escape(plain))
        if not group:
            parts.append(pattern)
        elif group not in seen:
            seen[group] = token
            parts.append(f"(?P<{group}>{pattern})")
        else:
            parts.append(f"(?P={group})" if seen[group] == token else pattern)
    return "".join(parts)


def read_date(match: re.Match[str]) -> dt.date | None:
    """Return the day in a match of `date_pattern`, or None if there is no such day."""
    groups = match.groupdict()
    try:
        year = int(groups["year"] if groups.get("year") else f"20{groups['short_year']}")
        months = [month[:3].casefold() for month in _MONTHS]
        month = int(groups["month"]) if groups.get("month") else months.index(groups["month_name"][:3].casefold()) + 1
        number = groups["day"] if groups.get("day") else groups["ordinal"][:-2]
        return dt.date(year, month, int(number))
    except (ValueError, OverflowError):
        return None


def _ordinal(number: int) -> str:
    return "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")

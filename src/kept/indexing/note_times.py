"""When a note and the entries in it were written."""

from __future__ import annotations

import datetime as dt
import re

from kept.chunking.markdown import HEADING_JOIN
from kept.workspace.daily import KEPTS_OWN, DailyNotes

# 15:09, 9:05 am, 15:09:30; not 15:09 inside a longer number.
_ENTRY = r"(\d{1,2}):(\d{2})(?::(\d{2}))?(?![\d:])(?:\s?([AaPp])\.?[Mm]\b)?"


def daily_date(path: str, daily: DailyNotes = KEPTS_OWN) -> dt.date | None:
    """Return the day of a daily note, or None. ``daily`` is where the workspace has them."""
    found = daily.find_day(path)
    return found[0] if found else None


def note_timestamp_ms(path: str, mtime_ns: int, daily: DailyNotes = KEPTS_OWN) -> int:
    """Return when a note was written as far as its file tells: the day it is named after, else its last change."""
    day = daily_date(path, daily)
    timestamp_ms = None if day is None else to_timestamp_ms(dt.datetime(day.year, day.month, day.day))
    return mtime_ns // 1_000_000 if timestamp_ms is None else timestamp_ms


def to_timestamp_ms(time: dt.datetime | None) -> int | None:
    """Return a time in milliseconds, or None if it has none: the year 1 has no local time."""
    try:
        return None if time is None else int(time.astimezone().timestamp() * 1000)
    except (OverflowError, OSError, ValueError):
        return None


def entry_timestamp_ms(day: dt.date | None, heading: str) -> int | None:
    """Return the time of an entry in a daily note, from the innermost heading that begins with a time, or None."""
    entry = None if day is None else entry_heading(heading)
    time = None if entry is None else parse_entry_time(entry.rpartition(HEADING_JOIN)[2])
    return None if day is None or time is None else to_timestamp_ms(dt.datetime.combine(day, time))


def entry_heading(heading: str) -> str | None:
    """Return the headings down to the innermost one that begins with a time, or None if none does."""
    titles = heading.split(HEADING_JOIN) if ":" in heading else []
    for count in range(len(titles), 0, -1):
        if parse_entry_time(titles[count - 1]) is not None:
            return HEADING_JOIN.join(titles[:count])
    return None


def parse_entry_time(title: str) -> dt.time | None:
    """Return the time that a heading begins with: "15:09", "9:05 am Standup". None if there is none."""
    match = re.match(_ENTRY, title)
    if match is None:
        return None
    hour = int(match[1])
    if match[4]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match[4] in "Pp" else 0)
    try:
        return dt.time(hour, int(match[2]), int(match[3] or 0))
    except ValueError:
        return None

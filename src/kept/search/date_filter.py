"""Dates that limit a search: 2026-03-01, 2026-03-01T14:00, today, yesterday, 7d, 2w, 12h."""

from __future__ import annotations

import datetime as dt
import re

from kept.errors import UsageError

_AGO = r"(\d{1,6})\s*(h|d|w|m|y)"
_UNIT_HOURS = {"h": 1, "d": 24, "w": 24 * 7, "m": 24 * 30, "y": 24 * 365}

When = str | dt.date | dt.datetime


def parse_when(when: When, *, now: dt.datetime, end: bool = False) -> int:
    """Return a point in time as milliseconds since 1970.

    A day means its beginning, or with ``end`` the beginning of the next day.
    """
    if isinstance(when, dt.datetime):
        return _to_ms(when if when.tzinfo else when.astimezone())
    if isinstance(when, dt.date):
        return _day_to_ms(when, end=end)
    text = when.strip().lower()
    if text in ("today", "yesterday"):
        return _day_to_ms(now.date() - dt.timedelta(days=text == "yesterday"), end=end)
    ago = re.fullmatch(_AGO, text)
    try:
        if ago:
            return _to_ms(now - dt.timedelta(hours=int(ago.group(1)) * _UNIT_HOURS[ago.group(2)]))
        if len(text) <= 10:
            return _day_to_ms(dt.date.fromisoformat(text), end=end)
        return parse_when(dt.datetime.fromisoformat(when.strip()), now=now)
    except (ValueError, OverflowError):
        raise UsageError(
            f"'{when}' is not a date.", hint="Write 2026-03-01, 2026-03-01T14:00, today, yesterday, 7d or 2w."
        ) from None


def _day_to_ms(day: dt.date, *, end: bool) -> int:
    day = day + dt.timedelta(days=1) if end else day
    return _to_ms(dt.datetime(day.year, day.month, day.day).astimezone())


def _to_ms(when: dt.datetime) -> int:
    return int(when.timestamp() * 1000)

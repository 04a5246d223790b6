"""Dates that limit a search: 2026-03-01, 2026-03-01T14:00, yesterday, 7d, "last Thursday", 15.01.2024."""

from __future__ import annotations

import datetime as dt
import re

from kept.errors import UsageError
from kept.search.periods import DateLocale, Period, current_locale, is_ambiguous_date, to_ms

_AGO = r"(\d{1,6})\s*(h|d|w|m|y)"
_UNIT_HOURS = {"h": 1, "d": 24, "w": 24 * 7, "m": 24 * 30, "y": 24 * 365}
_CLOCK = r"(?:\s+at|\s+um|,)?\s+(\d{1,2})(?::(\d\d))?\s*(am|pm|uhr)?$"
_PYTHON_HINT = "Use a datetime, a date, a timedelta, or a text such as 'yesterday' or '2026-03-01'."
_HINT = "Write 2026-03-01, 2026-03-01T14:00, yesterday, 7d, 'last Thursday' or '12 November'."

When = str | dt.date | dt.datetime | dt.timedelta
"""A point in time. A timedelta is that long ago."""


def parse_when(when: When, *, now: dt.datetime, end: bool = False, locale: DateLocale | None = None) -> int:
    """Return a point in time as milliseconds since 1970.

    A day or a longer time means its beginning, or with ``end`` the beginning of what follows it.
    """
    try:
        if isinstance(when, dt.timedelta):
            return _to_ms(now - when)
        if isinstance(when, dt.datetime):
            return _to_ms(when if when.tzinfo else when.astimezone())
        if isinstance(when, dt.date):
            return _day_to_ms(when, end=end)
        if not isinstance(when, str):
            raise UsageError(f"{when!r:.80} is not a date.", hint=_PYTHON_HINT)
        moment = _parse_short(when.strip().lower(), now, end=end)
        if moment is None:
            moment = _parse_words(when, now, locale, end=end)
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        if is_ambiguous_date(str(when), locale or current_locale()):
            raise UsageError(f"'{when}' may begin with the day or with the month.", hint="Write it as 2026-03-01.")
        raise UsageError(f"'{when}' is not a date.", hint=_HINT)
    return moment


def parse_utc(when: When | None, *, now: dt.datetime) -> str | None:
    """Return a moment as the history writes it, in UTC, or None if there is none."""
    from kept.history.note_change import utc_text

    if when is None or when == "":
        return None
    return utc_text(dt.datetime.fromtimestamp(parse_when(when, now=now) / 1000, dt.UTC))


def check_order(since: When | None, until: When | None, since_ms: int | None, until_ms: int | None) -> None:
    """Raise UsageError if ``since`` is after ``until``."""
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise UsageError(f"'since' ({since}) is after 'until' ({until}).", hint="Swap them.")


def _parse_short(text: str, now: dt.datetime, *, end: bool) -> int | None:
    """Read what needs no words: 2026-03-01, 2026-03-01T14:00, today, yesterday, now, 7d. Return None otherwise."""
    if text in ("today", "yesterday"):
        return _day_to_ms(now.date() - dt.timedelta(days=text == "yesterday"), end=end)
    if text == "now":
        return _to_ms(now)
    if ago := re.fullmatch(_AGO, text):
        return _to_ms(now - dt.timedelta(hours=int(ago.group(1)) * _UNIT_HOURS[ago.group(2)]))
    try:
        if len(text) <= 10:
            return _day_to_ms(dt.date.fromisoformat(text), end=end)
        moment = dt.datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    return _to_ms(moment if moment.tzinfo else moment.astimezone())


def _parse_words(text: str, now: dt.datetime, locale: DateLocale | None, *, end: bool) -> int | None:
    period = find_period(text, now, locale)
    if period is None and (clock := re.search(_CLOCK, text.lower())):
        day = find_period(text[: clock.start()], now, locale)
        return to_ms(_at_clock(day.start, clock)) if day else None
    if period is None:
        return None
    return to_ms(period.end if end else period.start)


def find_period(text: str, now: dt.datetime, locale: DateLocale | None = None) -> Period | None:
    """Return the period that a text is the name of, or None."""
    from kept.search.date_reader import read_times

    if re.fullmatch(r"\s*(?:19|20)\d\d\s*", text):
        text = f"in {text}"
    read = read_times(text, now, locale)
    if len(read.mentions) != 1:
        return None
    mention = read.mentions[0]
    around = (*read.tokens[: mention.first], *read.tokens[mention.last :])
    if any(
        token.text not in ("the", "in", "on", "from", "am", "vom", "im", "el", "le", "la", "il") for token in around
    ):
        return None
    return mention.reading.exact or mention.reading.periods[0]


def _at_clock(day: dt.datetime, clock: re.Match[str]) -> dt.datetime:
    hour, minute, half = int(clock[1]), int(clock[2] or 0), clock[3]
    if half in ("am", "pm"):
        hour = hour % 12 + (12 if half == "pm" else 0)
    return day.replace(hour=hour, minute=minute)


def _day_to_ms(day: dt.date, *, end: bool) -> int:
    day = day + dt.timedelta(days=1) if end else day
    return _to_ms(dt.datetime(day.year, day.month, day.day).astimezone())


def _to_ms(when: dt.datetime) -> int:
    return int(when.timestamp() * 1000)

"""Periods of local time, and the calendar arithmetic that makes them.

Times are local and naive: a day has 23 or 25 hours where the clocks change, which only the local time zone knows.
"""

from __future__ import annotations

import datetime as dt
from typing import Literal

from kept.values import frozen

EARLIER_YEARS, EARLIER_WEIGHT = 5, 0.5
_MAX_DAYS = 36_500
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "quarter": 91, "year": 365}

TimeKind = Literal["day", "date", "recurring", "weekday", "week", "month", "year", "span"]
"""``day`` is relative to today, ``date`` has a year, ``recurring`` has none."""


@frozen
class Period:
    """Local time from ``start`` up to but not including ``end``."""

    start: dt.datetime
    end: dt.datetime
    weight: float = 1.0


@frozen
class TimeReading:
    """What a time expression means."""

    kind: TimeKind
    periods: tuple[Period, ...]
    """The most likely one first."""
    exact: Period | None = None
    """The very day or moment, where ``periods`` has the time around it."""


def to_ms(local: dt.datetime) -> int:
    """Return a local time as milliseconds since 1970."""
    try:
        return int(local.astimezone().timestamp() * 1000)
    except (OverflowError, OSError, ValueError):  # the year 1 has no local time
        return int(local.replace(tzinfo=dt.UTC).timestamp() * 1000)


def days_from(day: dt.date, count: int) -> Period:
    """Return a number of whole days from the beginning of one."""
    return Period(_midnight(day), _midnight(day + dt.timedelta(days=count)))


def day_of(day: dt.date) -> Period:
    return days_from(day, 1)


def week_of(day: dt.date, first_weekday: int) -> Period:
    """Return the week that a day is in."""
    return days_from(day - dt.timedelta(days=(day.weekday() - first_weekday) % 7), 7)


def month_of(year: int, month: int) -> Period:
    return Period(dt.datetime(year, month, 1), _midnight(add_months(dt.date(year, month, 1), 1)))


def quarter_of(year: int, quarter: int) -> Period:
    first = dt.date(year, 3 * quarter - 2, 1)
    return Period(_midnight(first), _midnight(add_months(first, 3)))


def year_of(year: int) -> Period:
    return Period(dt.datetime(year, 1, 1), dt.datetime(year + 1, 1, 1))


def add_months(day: dt.date, count: int) -> dt.date:
    """Return the same day of another month, or its last day: 31 March less one month is 28 February."""
    year, month = divmod(day.year * 12 + day.month - 1 + count, 12)
    last_day = (dt.date(year + (month + 1) // 12, (month + 1) % 12 + 1, 1) - dt.timedelta(days=1)).day
    return dt.date(year, month + 1, min(day.day, last_day))


def last_occurrences(month: int, day: int | None, today: dt.date, *, before: bool = False) -> tuple[Period, ...]:
    """Return the last such day or month, and at a lower weight those of earlier years that exist.

    ``before`` leaves out the current month: "last March", said in March, is a year ago.
    """
    has_been = (month, day or 1) <= (today.month, today.day) and not (before and month == today.month)
    year = today.year if has_been else today.year - 1
    periods: list[Period] = []
    for back in range(1 + EARLIER_YEARS):
        try:
            period = day_of(dt.date(year - back, month, day)) if day else month_of(year - back, month)
        except (ValueError, OverflowError):
            continue
        periods.append(Period(period.start, period.end, EARLIER_WEIGHT if back else 1.0))
    return tuple(periods)


def read_ago(now: dt.datetime, unit: str, count: int) -> TimeReading:
    """Return the time so many units ago; a negative count is ahead.

    People round: "two weeks ago" is somewhere in the week around that day.
    """
    now = now.replace(tzinfo=None)
    if unit in ("minute", "hour"):
        moment = now - dt.timedelta(**{f"{unit}s": max(-_MAX_DAYS, min(count, _MAX_DAYS))})
        half = dt.timedelta(minutes=5 if unit == "minute" else 30)
        return TimeReading("span", (Period(moment - half, moment + half),), exact=Period(moment, moment))
    day = shift(now.date(), unit, -count)
    half_days = _UNIT_DAYS[unit] // 2
    around = days_from(day - dt.timedelta(days=half_days), 2 * half_days + 1)
    return TimeReading("day" if unit == "day" else "span", (around,), exact=day_of(day))


def shift(day: dt.date, unit: str, count: int) -> dt.date:
    """Return the day so many units later."""
    if unit in ("month", "quarter", "year"):
        count = max(-1200, min(count, 1200))
        return add_months(day, count * {"month": 1, "quarter": 3, "year": 12}[unit])
    days = max(-_MAX_DAYS, min(count * _UNIT_DAYS[unit], _MAX_DAYS))
    return day + dt.timedelta(days=days)


def _midnight(day: dt.date) -> dt.datetime:
    return dt.datetime(day.year, day.month, day.day)

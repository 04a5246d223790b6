"""The calendar of a year as a heat map: a column for each week, a square for each day."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from kept.values import frozen

STEP = 14
SIZE = 11
LEFT, TOP = 26, 16
_LEVELS = 4
_WEEK = 7


@frozen
class DayCount:
    """Passages of a day."""

    notes: int = 0
    conversations: int = 0

    @property
    def total(self) -> int:
        return self.notes + self.conversations


@frozen
class DaySquare:
    day: dt.date
    x: int
    y: int
    level: int
    """From 0, nothing, to 4."""
    count: DayCount

    @property
    def label(self) -> str:
        parts = [
            f"{number} {noun if number == 1 else noun + 's'}"
            for number, noun in ((self.count.notes, "passage"), (self.count.conversations, "message"))
            if number
        ]
        return f"{self.day:%Y-%m-%d}: {', '.join(parts) or 'nothing'}"


@frozen
class CalendarMap:
    squares: tuple[DaySquare, ...]
    months: tuple[tuple[str, int], ...]
    """Names of the months, and where they begin."""
    width: int
    height: int
    total: int


def make_calendar(counts: Mapping[dt.date, DayCount], last: dt.date, *, weeks: int = 53) -> CalendarMap:
    """Return the map of the weeks up to that of the last day. Weeks begin on Monday."""
    monday = last - dt.timedelta(days=last.weekday()) - dt.timedelta(weeks=weeks - 1)
    days = [monday + dt.timedelta(days=number) for number in range((last - monday).days + 1)]
    most = max((counts[day].total for day in days if day in counts), default=0)
    squares = tuple(_square(day, number, counts.get(day, DayCount()), most) for number, day in enumerate(days))
    months = tuple(
        (f"{day:%b}", LEFT + number // _WEEK * STEP) for number, day in enumerate(days) if day.day == 1 or number == 0
    )
    total = sum(square.count.total for square in squares)
    return CalendarMap(squares, _apart(months), LEFT + weeks * STEP, TOP + _WEEK * STEP, total)


def _square(day: dt.date, number: int, count: DayCount, most: int) -> DaySquare:
    # By square root: one busy day must not make all others pale.
    level = max(1, round(_LEVELS * (count.total / most) ** 0.5)) if count.total else 0
    return DaySquare(day, LEFT + number // _WEEK * STEP, TOP + number % _WEEK * STEP, level, count)


def _apart(months: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Leave out the name of a month that begins too close to the next one."""
    following = [at for _, at in months[1:]] + [1 << 30]
    return tuple((name, at) for (name, at), after in zip(months, following, strict=True) if after - at >= 2 * STEP)

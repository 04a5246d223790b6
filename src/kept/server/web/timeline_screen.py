"""Timeline: notes and conversations by day, with a calendar of the year before."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from starlette.responses import Response

from kept.base.records import Filter, Source
from kept.base.values import frozen
from kept.base.wording import plural
from kept.server.web.visit import Page, Screen, Visit

_MOST_PER_DAY = 200
_FIRST_YEAR, _LAST_YEAR = 1970, 2200
_DAYS_SHOWN = 7
"""Days with entries on one page."""
_STEP, _LEFT, _TOP = 14, 26, 16
"""Distance of two squares of the calendar, and where the first is."""
_LEVELS = 4
_DAY = dt.timedelta(days=1) - dt.timedelta(milliseconds=1)
_WEEK = 7
_WEEKS = 53

DayCounts = Mapping[dt.date, Mapping[Source, int]]
"""Passages of each day that has any, by source."""


def show_timeline(visit: Visit) -> Response:
    """Show the days up to one, newest first, with the calendar of the year that ends there."""
    memory = visit.memory
    today = memory.clock.now().astimezone().date()
    day = read_day(visit.query.get("day", ""), today)
    rows, degraded = memory.index_service.read(
        lambda index: index.words.remember("days", lambda: index.live.lists.count_days(Filter()))
    )
    counts: dict[dt.date, dict[Source, int]] = {}
    for date, source, number in rows:
        counts.setdefault(dt.date.fromisoformat(date), {})[source] = number
    until = [entry for entry in sorted(counts, reverse=True) if entry <= day]
    days = []
    for entry in until[:_DAYS_SHOWN]:
        start = dt.datetime.combine(entry, dt.time())
        days.append((entry, memory.list(source=None, since=start, until=start + _DAY, max_results=_MOST_PER_DAY)))
    return visit.render(
        "timeline.html",
        day=day,
        today=today,
        is_empty_day=day != today and day not in counts,
        calendar=make_calendar(counts, min(today, day + dt.timedelta(days=180))),
        days=days,
        older=next(iter(until[_DAYS_SHOWN:]), None),
        has_newer=len(until) < len(counts),
        degraded=degraded,
    )


def read_day(text: str, today: dt.date) -> dt.date:
    """Return the day that the address names, or today."""
    try:
        day = dt.date.fromisoformat(text)
    except ValueError:
        return today
    return day if _FIRST_YEAR <= day.year < _LAST_YEAR else today


# the calendar


@frozen
class DaySquare:
    day: dt.date
    x: int
    y: int
    level: int
    """From 0, nothing, to 4."""
    label: str


@frozen
class CalendarMap:
    squares: tuple[DaySquare, ...]
    months: tuple[tuple[str, int], ...]
    """Names of the months, and where they begin."""
    width: int
    height: int
    total: int


def make_calendar(counts: DayCounts, last: dt.date) -> CalendarMap:
    """Return the map of the weeks up to that of the last day. Weeks begin on Monday."""
    monday = last - dt.timedelta(days=last.weekday()) - dt.timedelta(weeks=_WEEKS - 1)
    days = [monday + dt.timedelta(days=number) for number in range((last - monday).days + 1)]
    totals = [sum(counts.get(day, {}).values()) for day in days]
    most = max(totals)
    squares = []
    for number, (day, total) in enumerate(zip(days, totals, strict=True)):
        # By square root: one busy day must not make all others pale.
        level = max(1, round(_LEVELS * (total / most) ** 0.5)) if total else 0
        x, y = _LEFT + number // _WEEK * _STEP, _TOP + number % _WEEK * _STEP
        squares.append(DaySquare(day, x, y, level, _label(day, counts.get(day, {}))))
    months = tuple((f"{square.day:%b}", square.x) for square in squares if square.day.day == 1)
    return CalendarMap(tuple(squares), months, _LEFT + _WEEKS * _STEP, _TOP + _WEEK * _STEP, sum(totals))


def _label(day: dt.date, count: Mapping[Source, int]) -> str:
    nouns: dict[Source, str] = {"memory": "passage", "sessions": "message"}
    return f"{day}: {', '.join(plural(count[source], noun) for source, noun in nouns.items() if source in count)}"


SCREEN = Screen(
    name="timeline",
    label="Timeline",
    home="/timeline",
    pages=(Page("/timeline", show_timeline, "read"),),
    key="t",
)

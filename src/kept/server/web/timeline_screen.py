"""Timeline: notes and conversations by day, with a calendar of the year before."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from contextlib import suppress

from starlette.responses import Response

from kept.base.records import Filter, Source
from kept.base.values import frozen
from kept.server.web.visit import Page, Screen, Visit

_MOST_PER_DAY = 200
_FIRST_YEAR, _LAST_YEAR = 1970, 2200
_DAYS_SHOWN = 7
"""Days with entries on one page."""
_LEVELS = 4
_DAY = dt.timedelta(days=1) - dt.timedelta(milliseconds=1)
_WEEKS = 53

DayCounts = Mapping[dt.date, Mapping[Source, int]]
"""Passages of each day that has any, by source."""


def show_timeline(visit: Visit) -> Response:
    """Show the days up to one, newest first, with the calendar of the year that ends there."""
    memory = visit.memory
    today = memory.clock.now().astimezone().date()
    day = today
    with suppress(ValueError):  # an address without a day means today
        asked = dt.date.fromisoformat(visit.query.get("day", ""))
        day = asked if _FIRST_YEAR <= asked.year < _LAST_YEAR else today
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


# the calendar


@frozen
class DaySquare:
    day: dt.date
    level: int
    """From 0, nothing, to 4."""
    total: int
    count: Mapping[Source, int]


def make_calendar(counts: DayCounts, last: dt.date) -> list[DaySquare]:
    """Return the days of the weeks up to that of the last day. Weeks begin on Monday."""
    monday = last - dt.timedelta(days=last.weekday()) - dt.timedelta(weeks=_WEEKS - 1)
    days = [monday + dt.timedelta(days=number) for number in range((last - monday).days + 1)]
    totals = [sum(counts.get(day, {}).values()) for day in days]
    most = max(totals)
    # By square root: one busy day must not make all others pale.
    levels = [max(1, round(_LEVELS * (total / most) ** 0.5)) if total else 0 for total in totals]
    return list(map(DaySquare, days, levels, totals, [counts.get(day, {}) for day in days]))


SCREEN = Screen(
    name="timeline",
    label="Timeline",
    home="/timeline",
    pages=(Page("/timeline", show_timeline, "read"),),
    key="t",
)

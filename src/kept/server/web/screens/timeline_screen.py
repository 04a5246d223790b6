"""Timeline: notes and conversations by day, with a calendar of the year before."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from starlette.responses import Response

from kept.base.listings import FileSummary
from kept.base.records import Filter
from kept.base.values import frozen
from kept.memory import Memory
from kept.search.query_dates import find_period
from kept.server.web.charts import DayCount, make_calendar
from kept.server.web.visit import Page, Screen, Visit

_MOST_PER_DAY = 200
_FIRST_YEAR, _LAST_YEAR = 1970, 2200
_DAYS_SHOWN = 7
"""Days with entries on one page."""


@frozen
class DayView:
    day: dt.date
    files: tuple[FileSummary, ...]
    total: int


def show_timeline(visit: Visit) -> Response:
    """Show the days up to one, newest first, with the calendar of the year that ends there."""
    memory = visit.memory
    today = memory.clock.now().astimezone().date()
    asked = visit.query.get("day", "").strip()
    day = read_day(asked, memory) if asked else today
    counts, degraded = load_counts(memory)
    last = today if day is None or day > today else max(day, min(today, day + dt.timedelta(days=180)))
    shown = [entry for entry in sorted(counts, reverse=True) if day is None or entry <= day][:_DAYS_SHOWN]
    older = next((entry for entry in sorted(counts, reverse=True) if shown and entry < shown[-1]), None)
    newer = next((entry for entry in sorted(counts) if day is not None and entry > day), None)
    return visit.render(
        "timeline.html",
        asked=asked,
        day=day,
        today=today,
        is_empty_day=day is not None and bool(asked) and day not in counts,
        calendar=make_calendar(counts, last),
        days=[load_day(memory, entry) for entry in shown],
        older=older,
        newer=newer,
        degraded=degraded,
    )


def read_day(text: str, memory: Memory) -> dt.date | None:
    """Return the day that a text means, such as "yesterday" or "12 November", or None."""
    try:
        day: dt.date | None = dt.date.fromisoformat(text)
    except ValueError:
        period = find_period(text, memory.clock.now().replace(tzinfo=None))
        day = (period.end - dt.timedelta(microseconds=1)).date() if period else None
    return day if day and _FIRST_YEAR <= day.year < _LAST_YEAR else None


def load_counts(memory: Memory) -> tuple[Mapping[dt.date, DayCount], tuple[str, ...]]:
    """Return the number of entries of each day that has any, and problems of the index."""
    _, degraded = memory.index_service.read(lambda index: None)  # brings the index up to date
    with memory.index_service.inspecting() as (index, _), index.reading():
        rows = index.words.remember("days", lambda: index.live.lists.count_days(Filter()))
    counts: dict[dt.date, DayCount] = {}
    for text, source, number in rows:
        day = dt.date.fromisoformat(text)
        before = counts.get(day, DayCount())
        is_note = source == "memory"
        counts[day] = DayCount(
            before.notes + (number if is_note else 0), before.conversations + (0 if is_note else number)
        )
    return counts, degraded


def load_day(memory: Memory, day: dt.date) -> DayView:
    start = dt.datetime.combine(day, dt.time())
    end = start + dt.timedelta(days=1) - dt.timedelta(milliseconds=1)
    listing = memory.list(source=None, since=start, until=end, max_results=_MOST_PER_DAY)
    return DayView(day, listing.files, listing.total)


SCREEN = Screen(
    name="timeline",
    label="Timeline",
    home="/timeline",
    pages=(Page("/timeline", show_timeline, "read"),),
    key="t",
)

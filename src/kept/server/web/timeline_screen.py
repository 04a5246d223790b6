"""Timeline: notes and conversations by day, with a calendar of the year before."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from starlette.responses import Response

from kept.base.listings import FileSummary
from kept.base.records import Filter
from kept.base.values import frozen
from kept.base.wording import plural
from kept.memory import Memory
from kept.search.query_dates import find_period
from kept.server.web.visit import Page, Screen, Visit

_MOST_PER_DAY = 200
_FIRST_YEAR, _LAST_YEAR = 1970, 2200
_DAYS_SHOWN = 7
"""Days with entries on one page."""
_STEP, _LEFT, _TOP = 14, 26, 16
"""Distance of two squares of the calendar, and where the first is."""
_LEVELS = 4
_WEEK = 7
_WEEKS = 53


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


# the calendar


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
        counts = ((self.count.notes, "passage"), (self.count.conversations, "message"))
        parts = [plural(number, noun) for number, noun in counts if number]
        return f"{self.day}: {', '.join(parts) or 'nothing'}"


@frozen
class CalendarMap:
    squares: tuple[DaySquare, ...]
    months: tuple[tuple[str, int], ...]
    """Names of the months, and where they begin."""
    width: int
    height: int
    total: int


def make_calendar(counts: Mapping[dt.date, DayCount], last: dt.date) -> CalendarMap:
    """Return the map of the weeks up to that of the last day. Weeks begin on Monday."""
    monday = last - dt.timedelta(days=last.weekday()) - dt.timedelta(weeks=_WEEKS - 1)
    days = [monday + dt.timedelta(days=number) for number in range((last - monday).days + 1)]
    most = max((counts[day].total for day in days if day in counts), default=0)
    squares = tuple(_square(day, number, counts.get(day, DayCount()), most) for number, day in enumerate(days))
    months = tuple((f"{square.day:%b}", square.x) for square in squares if square.day.day == 1)
    total = sum(square.count.total for square in squares)
    return CalendarMap(squares, months, _LEFT + _WEEKS * _STEP, _TOP + _WEEK * _STEP, total)


def _square(day: dt.date, number: int, count: DayCount, most: int) -> DaySquare:
    # By square root: one busy day must not make all others pale.
    level = max(1, round(_LEVELS * (count.total / most) ** 0.5)) if count.total else 0
    return DaySquare(day, _LEFT + number // _WEEK * _STEP, _TOP + number % _WEEK * _STEP, level, count)


SCREEN = Screen(
    name="timeline",
    label="Timeline",
    home="/timeline",
    pages=(Page("/timeline", show_timeline, "read"),),
    key="t",
)

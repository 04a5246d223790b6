"""Drawings as SVG: bars by day, a map of days, and the parts of a score."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from kept.records import ScorePart
from kept.values import frozen

WIDTH, HEIGHT = 600.0, 140.0
_GAP = 0.25
"""Share of the width of a day that stays empty."""
HUES = ("words", "meaning", "time", "exact", "other")
"""Classes of the style sheet that colour the segments, in the order of the groups."""


@frozen
class BarSegment:
    x: float
    y: float
    width: float
    height: float
    hue: str
    label: str
    """The day, the group and its amount, for those who point at it or do not see it."""


@frozen
class BarChart:
    segments: tuple[BarSegment, ...]
    legend: tuple[tuple[str, str, int], ...]
    """Class, name and total of each group, the largest first."""
    top: int
    """Amount of the highest bar."""
    first: dt.date
    last: dt.date

    @property
    def total(self) -> int:
        return sum(amount for _, _, amount in self.legend)


def make_bar_chart(amounts: Mapping[tuple[dt.date, str], int], days: Sequence[dt.date]) -> BarChart:
    """Return a chart of amounts by day and group. ``days`` are the bars from left to right."""
    chosen = {key: amount for key, amount in amounts.items() if key[0] in days and amount > 0}
    totals: dict[str, int] = {}
    heights: dict[dt.date, int] = {}
    for (day, group), amount in chosen.items():
        totals[group] = totals.get(group, 0) + amount
        heights[day] = heights.get(day, 0) + amount
    groups = sorted(totals, key=lambda group: (-totals[group], group))
    hues = {group: HUES[min(at, len(HUES) - 1)] for at, group in enumerate(groups)}
    top = max(heights.values(), default=0)
    step = WIDTH / max(1, len(days))
    segments = []
    for at, day in enumerate(days):
        floor = HEIGHT
        for group in groups:
            amount = chosen.get((day, group), 0)
            if amount:
                height = HEIGHT * amount / top
                floor -= height
                x, width = at * step + step * _GAP / 2, step * (1 - _GAP)
                label = f"{day:%Y-%m-%d} {group}: {amount:,}"
                segments.append(
                    BarSegment(round(x, 2), round(floor, 2), round(width, 2), round(height, 2), hues[group], label)
                )
    legend = tuple((hues[group], group, totals[group]) for group in groups)
    return BarChart(tuple(segments), legend, top, days[0], days[-1])


def last_days(today: dt.date, count: int) -> list[dt.date]:
    """Return the last days up to today, oldest first."""
    return [today - dt.timedelta(days=back) for back in range(count - 1, -1, -1)]


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


WIDTH = 100.0
"""Width of a score of 1, in the units of the drawing."""
_SMALLEST = 0.2
_HUES = {
    **dict.fromkeys(("words", "coverage", "around", "reach", "answers"), "words"),
    **dict.fromkeys(("meaning", "beside"), "meaning"),
    **dict.fromkeys(("recency", "when"), "time"),
    "exact": "exact",
}
"""Colours of parts by their name, as classes of the style sheet."""


@frozen
class Segment:
    """A part of a score: where it begins in the bar, how long it is, and the class that colours it."""

    x: float
    width: float
    hue: str
    part: ScorePart


@frozen
class ScoreBar:
    segments: tuple[Segment, ...]
    score: float
    """Where the bar ends, in the units of the drawing."""
    parts: tuple[tuple[ScorePart, str], ...]
    """All parts, also those too small to be drawn, each with the class that colours it."""
    label: str
    """The parts in words, for those who do not see the bar."""


def make_score_bar(parts: Sequence[ScorePart], score: float) -> ScoreBar:
    """Return the bar of a score. What a part takes away is drawn back from where the parts before it ended."""
    segments = []
    at = 0.0
    for part in parts:
        start, at = at, at + part.value * WIDTH
        left, right = max(0.0, min(start, at)), min(WIDTH, max(start, at))
        if right - left >= _SMALLEST:
            segments.append(Segment(round(left, 2), round(right - left, 2), _hue(part), part))
    label = ", ".join(f"{part.name} {part.value:+.2f}" for part in parts)
    return ScoreBar(tuple(segments), round(score * WIDTH, 2), tuple((part, _hue(part)) for part in parts), label)


def _hue(part: ScorePart) -> str:
    return "loss" if part.value < 0 else _HUES.get(part.name, "other")

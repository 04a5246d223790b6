"""Drawings as SVG: bars by day, a map of days, and the parts of a score."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from kept.base.records import ScorePart
from kept.base.values import frozen
from kept.base.wording import plural

WIDTH, HEIGHT = 600.0, 140.0
"""Size of the bars by day."""
_GAP = 0.25
"""Share of the width of a day that stays empty."""
_STEP, _LEFT, _TOP = 14, 26, 16
"""Distance of two squares of the map, and where the first is."""
_LEVELS = 4
_WEEK = 7
_SCORE_WIDTH = 100.0
"""Width of a score of 1."""
_SMALLEST = 0.2
_HUES = {
    **dict.fromkeys(("words", "coverage", "around", "reach", "answers"), "words"),
    **dict.fromkeys(("meaning", "beside"), "meaning"),
    **dict.fromkeys(("recency", "when"), "time"),
    "exact": "exact",
}
"""Colours of parts of a score by their name, as classes of the style sheet."""


@frozen
class Bar:
    x: float
    width: float
    height: float
    label: str
    """The day and its amounts, for those who point at it or do not see it."""


def make_bars(amounts: Mapping[dt.date, Mapping[str, int]], days: Sequence[dt.date]) -> list[Bar]:
    """Return a bar for each of the days that has amounts, from left to right. The highest fills the drawing."""
    totals = {day: sum(amounts.get(day, {}).values()) for day in days}
    top = max(totals.values())
    step = WIDTH / len(days)
    return [
        Bar(
            round((at + _GAP / 2) * step, 2),
            round((1 - _GAP) * step, 2),
            round(HEIGHT * totals[day] / top, 2),
            f"{day}: {', '.join(f'{name} {amount:,}' for name, amount in sorted(amounts[day].items()))}",
        )
        for at, day in enumerate(days)
        if totals[day] > 0
    ]


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


def make_calendar(counts: Mapping[dt.date, DayCount], last: dt.date, *, weeks: int = 53) -> CalendarMap:
    """Return the map of the weeks up to that of the last day. Weeks begin on Monday."""
    monday = last - dt.timedelta(days=last.weekday()) - dt.timedelta(weeks=weeks - 1)
    days = [monday + dt.timedelta(days=number) for number in range((last - monday).days + 1)]
    most = max((counts[day].total for day in days if day in counts), default=0)
    squares = tuple(_square(day, number, counts.get(day, DayCount()), most) for number, day in enumerate(days))
    months = tuple((f"{square.day:%b}", square.x) for square in squares if square.day.day == 1)
    total = sum(square.count.total for square in squares)
    return CalendarMap(squares, months, _LEFT + weeks * _STEP, _TOP + _WEEK * _STEP, total)


def _square(day: dt.date, number: int, count: DayCount, most: int) -> DaySquare:
    # By square root: one busy day must not make all others pale.
    level = max(1, round(_LEVELS * (count.total / most) ** 0.5)) if count.total else 0
    return DaySquare(day, _LEFT + number // _WEEK * _STEP, _TOP + number % _WEEK * _STEP, level, count)


@frozen
class ScoreBar:
    segments: tuple[tuple[float, float, str], ...]
    """Where each part begins in the bar, how long it is, and the class that colours it."""
    parts: tuple[tuple[ScorePart, str], ...]
    """All parts, also those too small to be drawn, each with the class that colours it."""
    label: str
    """The parts in words, for those who do not see the bar."""


def make_score_bar(parts: Sequence[ScorePart]) -> ScoreBar:
    """Return the bar of a score. What a part takes away is drawn back from where the parts before it ended."""
    segments = []
    at = 0.0
    for part in parts:
        start, at = at, at + part.value * _SCORE_WIDTH
        left, right = max(0.0, min(start, at)), min(_SCORE_WIDTH, max(start, at))
        if right - left >= _SMALLEST:
            segments.append((round(left, 2), round(right - left, 2), _hue(part)))
    label = ", ".join(f"{part.name} {part.value:+.2f}" for part in parts)
    return ScoreBar(tuple(segments), tuple((part, _hue(part)) for part in parts), label)


def _hue(part: ScorePart) -> str:
    return "loss" if part.value < 0 else _HUES.get(part.name, "other")

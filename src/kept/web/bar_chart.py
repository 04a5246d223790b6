"""Bars by day as a drawing: one bar for each day, made of segments that are stacked on each other."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

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

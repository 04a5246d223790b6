"""Plots as inline SVG: lines or bars of shares between 0 and 1. Colours and fonts are in the style sheet of the page.

Series differ in the shape of their markers as well as in colour. The width suits a phone; a wide window scales it up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from kept.values import frozen

WIDTH = 400
LEFT, RIGHT = 44, 388
TOP, BOTTOM = 96, 270
"""Edges of the plot area. Above it: the legend, the labels of the marks, and the labels of full bars."""
HEIGHT = BOTTOM + 44
_LEGEND_TOP, _LEGEND_ROW, _LEGEND_COLUMN = 14, 20, 180
_MARK_TOP = TOP - 28
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_MARKERS = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",  # circle
    "M-3.5 -3.5h7v7h-7z",  # square
    "M0 -4.5L4.5 3.5H-4.5z",  # triangle
    "M0 -5L5 0L0 5L-5 0z",  # diamond
)


@frozen
class PlotPoint:
    x: float
    share: float
    hollow: bool = False
    """True for a point that deserves less trust."""


@frozen
class PlotLine:
    label: str
    points: tuple[PlotPoint, ...]


@frozen
class PlotBar:
    x_from: float
    x_to: float
    share: float
    label: str


@frozen
class PlotMark:
    """Vertical line at a value of x."""

    x: float
    label: str


@frozen
class Plot:
    id: str
    """Unique on the page."""
    title: str
    description: str
    x_label: str
    x_ticks: tuple[float, ...]
    """Labelled values, ascending. The first and the last are the edges of the axis."""
    log_x: bool = False
    lines: tuple[PlotLine, ...] = ()
    bars: tuple[PlotBar, ...] = ()
    marks: tuple[PlotMark, ...] = ()


def draw_plot(plot: Plot) -> str:
    """Return a plot as an SVG element for an HTML page."""
    parts = [
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-labelledby="{plot.id}-title {plot.id}-desc">',
        f'<title id="{plot.id}-title">{escape(plot.title)}</title>',
        f'<desc id="{plot.id}-desc">{escape(plot.description)}</desc>',
        *_iter_axes(plot),
        *(_draw_bar(plot, bar) for bar in plot.bars),
        *(_draw_mark(plot, mark) for mark in plot.marks),
        # The first line is the one that matters, so it is drawn last, over the others.
        *reversed([_draw_line(plot, number, line) for number, line in enumerate(plot.lines)]),
        *(_draw_legend_entry(number, line.label) for number, line in enumerate(plot.lines)),
        "</svg>",
    ]
    return "\n".join(parts)


def scale_x(plot: Plot, value: float) -> float:
    """Return the horizontal position of a value. Values outside the axis are drawn at its edge."""
    first, last = plot.x_ticks[0], plot.x_ticks[-1]
    value = min(last, max(first, value))
    share = math.log(value / first) / math.log(last / first) if plot.log_x else (value - first) / (last - first)
    return LEFT + share * (RIGHT - LEFT)


def scale_y(share: float) -> float:
    return BOTTOM - min(1.0, max(0.0, share)) * (BOTTOM - TOP)


def _iter_axes(plot: Plot) -> Iterator[str]:
    for share in _SHARES:
        y = scale_y(share)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>'
        yield _text(LEFT - 9, y + 4, f"{share:.0%}", anchor="end")
    for tick in plot.x_ticks:
        x = scale_x(plot, tick)
        yield f'<path class="grid" d="M{x:.1f} {BOTTOM}v5"/>'
        yield _text(x, BOTTOM + 18, f"{tick:,g}", anchor="end" if x == RIGHT else "middle")
    yield _text((LEFT + RIGHT) / 2, BOTTOM + 37, plot.x_label, anchor="middle")


def _draw_bar(plot: Plot, bar: PlotBar) -> str:
    left, right, top = scale_x(plot, bar.x_from) + 2, scale_x(plot, bar.x_to) - 2, scale_y(bar.share)
    height = max(1.5, BOTTOM - top)  # visible at 0 %, unlike an interval without a bar
    rect = (
        f'<rect class="bar" x="{left:.1f}" y="{BOTTOM - height:.1f}" width="{right - left:.1f}" height="{height:.1f}"/>'
    )
    return rect + _text((left + right) / 2, BOTTOM - height - 4, bar.label, anchor="middle", css="count")


def _draw_mark(plot: Plot, mark: PlotMark) -> str:
    x = scale_x(plot, mark.x)
    is_right_half = x > (LEFT + RIGHT) / 2 + 60
    label = _text(
        x + (-4 if is_right_half else 4), _MARK_TOP + 9, mark.label, anchor="end" if is_right_half else "start"
    )
    return f'<path class="mark" d="M{x:.1f} {_MARK_TOP}V{BOTTOM}"/>{label}'


def _draw_line(plot: Plot, number: int, line: PlotLine) -> str:
    positions = [(scale_x(plot, point.x), scale_y(point.share)) for point in line.points]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in positions)
    markers = "".join(
        _draw_marker(number, x, y, hollow=point.hollow) for (x, y), point in zip(positions, line.points, strict=True)
    )
    return f'<g class="{_colour_class(number)}"><path class="line" d="M{path}"/>{markers}</g>' if positions else ""


def _draw_legend_entry(number: int, label: str) -> str:
    x = LEFT + number % 2 * _LEGEND_COLUMN
    y = _LEGEND_TOP + number // 2 * _LEGEND_ROW
    sample = f'<path class="line" d="M{x} {y}h24"/>{_draw_marker(number, x + 12, y)}'
    return f'<g class="{_colour_class(number)}">{sample}</g>{_text(x + 32, y + 4, label)}'


def _draw_marker(number: int, x: float, y: float, *, hollow: bool = False) -> str:
    shape = _MARKERS[number % len(_MARKERS)]
    css = ' class="hollow"' if hollow else ""
    return f'<path{css} transform="translate({x:.1f} {y:.1f})" d="{shape}"/>'


def _colour_class(number: int) -> str:
    return f"series{number % len(_MARKERS)}"


def _text(x: float, y: float, text: str, *, anchor: str = "start", css: str = "label") -> str:
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'

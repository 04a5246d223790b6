"""The parts of a score as a bar: each part is a segment of the way from 0 to 1."""

from __future__ import annotations

from collections.abc import Sequence

from kept.records import ScorePart
from kept.values import frozen

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

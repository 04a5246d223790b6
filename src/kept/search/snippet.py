"""Snippet: the part of a text that is shown, at most 700 characters around the matches."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_CHARS = 700


def make_snippet(text: str, words: Iterable[str], *, limit: int = MAX_CHARS) -> str:
    """Return the text if it is short, or else the part of it with the most matches, cut at lines or words."""
    if len(text) <= limit:
        return text
    start = _line_start(text, _densest_window(text, [word for word in words if word], limit))
    end = min(len(text), start + limit)
    lead = "…" if start > 0 else ""
    tail = "…" if end < len(text) else ""
    return lead + text[start : end - len(lead) - len(tail)].strip() + tail


def _densest_window(text: str, words: list[str], limit: int) -> int:
    """Return the start of the window with the most matches. Words are matched by their start: endings may differ."""
    stems = {re.escape(word[: max(4, len(word) - 3)]) for phrase in words for word in phrase.split()}
    if not stems:
        return 0
    starts = [match.start() for match in re.finditer("|".join(sorted(stems)), text, re.IGNORECASE)]
    best, best_count = 0, 0
    end = 0
    for at, start in enumerate(starts):
        end = max(end, at)
        while end < len(starts) and starts[end] < start + limit * 3 // 4:
            end += 1
        if end - at > best_count:
            best, best_count = start, end - at
    return max(0, best - limit // 8)


def _line_start(text: str, start: int) -> int:
    """Return the beginning of the line, or of the word if the line is long."""
    line_break = text.rfind("\n", max(0, start - 80), start + 1)
    if line_break >= 0:
        return line_break + 1
    space = text.rfind(" ", max(0, start - 40), start + 1)
    return space + 1 if space >= 0 else start

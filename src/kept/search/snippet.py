"""The part of a chunk that is shown: at most 700 characters around what matched."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_CHARS = 700


def make_snippet(text: str, words: Iterable[str], *, limit: int = MAX_CHARS) -> str:
    if len(text) <= limit:
        return text
    start = _densest(text, [word for word in words if word], limit)
    start = _line_start(text, start)
    end = min(len(text), start + limit)
    lead = "…" if start > 0 else ""
    tail = "…" if end < len(text) else ""
    return lead + text[start : end - len(lead) - len(tail)].strip() + tail


def _densest(text: str, words: list[str], limit: int) -> int:
    """Where a window has the most matches. A word is looked for by its beginning, which endings do not change."""
    stems = {re.escape(word[: max(4, len(word) - 3)]) for phrase in words for word in phrase.split()}
    if not stems:
        return 0
    places = [found.start() for found in re.finditer("|".join(sorted(stems)), text, re.IGNORECASE)]
    best, best_count = 0, 0
    end = 0
    for at, place in enumerate(places):
        end = max(end, at)
        while end < len(places) and places[end] < place + limit * 3 // 4:
            end += 1
        if end - at > best_count:
            best, best_count = place, end - at
    return max(0, best - limit // 8)


def _line_start(text: str, start: int) -> int:
    """Back to the beginning of the line, or of the word where the line is long."""
    line = text.rfind("\n", max(0, start - 80), start + 1)
    if line >= 0:
        return line + 1
    space = text.rfind(" ", max(0, start - 40), start + 1)
    return space + 1 if space >= 0 else start

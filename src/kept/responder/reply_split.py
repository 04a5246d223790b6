"""Split a reply into parts that a channel takes: between paragraphs, else lines, else words, else characters.

A code block that is split is closed in one part and opened again in the next, so that every part renders correctly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from kept.values import frozen

Measure = Callable[[str], int]

_FENCE = re.compile(r"\s*(`{3,}|~{3,})([^`]*)$")


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 units, as Telegram counts: characters beyond the basic plane (most emoji) are two."""
    return len(text) + sum(char > "\uffff" for char in text)


@frozen
class _Block:
    """Paragraph, or code block with its fences."""

    lines: tuple[str, ...]
    fence: str | None = None
    gap: int = 0
    """Number of blank lines before it."""

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def split_reply(text: str, limit: int | None, *, measure: Measure = len) -> list[str]:
    """Return the parts of a reply. None is blank or longer than the limit; only blank space is left out."""
    text = text.strip("\n")
    if not text.strip():
        return []
    if limit is None or measure(text) <= limit:
        return [text]
    parts: list[str] = []
    current = ""
    for block in _iter_blocks(text):
        joined = current + "\n" * (block.gap + 1) + block.text if current else block.text
        if measure(joined) <= limit:
            current = joined
            continue
        if current:
            parts.append(current)
        *whole, current = _split_block(block, limit, measure)
        parts += whole
    return [part for part in [*parts, current] if part.strip()]


def _iter_blocks(text: str) -> Iterator[_Block]:
    lines: list[str] = []
    fence: str | None = None
    gap = 0
    for line in text.split("\n"):
        if fence is not None:
            lines.append(line)
            if _closes(line, fence):
                yield _Block(tuple(lines), fence, gap)
                lines, fence, gap = [], None, 0
        elif opening := _FENCE.match(line):
            if lines:
                yield _Block(tuple(lines), None, gap)
                gap = 0
            lines, fence = [line], opening[1]
        elif line.strip():
            lines.append(line)
        else:
            if lines:
                yield _Block(tuple(lines), None, gap)
                lines, gap = [], 0
            gap += 1
    if lines:
        yield _Block(tuple(lines), fence, gap)


def _closes(line: str, fence: str) -> bool:
    mark = line.strip()
    return len(mark) >= len(fence) and set(mark) == {fence[0]}


def _split_block(block: _Block, limit: int, measure: Measure) -> list[str]:
    if measure(block.text) <= limit:
        return [block.text]
    if block.fence is None:
        return _pack(block.lines, limit, measure, at_words=True)
    opening = block.lines[0]
    room = limit - measure(opening) - len(block.fence) - 2
    if room < limit // 2:
        return _pack(block.lines, limit, measure, at_words=True)
    body = block.lines[1:-1] if _closes(block.lines[-1], block.fence) and len(block.lines) > 1 else block.lines[1:]
    return [f"{opening}\n{piece}\n{block.fence}" for piece in _pack(body, room, measure, at_words=False)]


def _pack(lines: Sequence[str], limit: int, measure: Measure, *, at_words: bool) -> list[str]:
    """Join lines as far as they fit. Cut a line that is too long alone."""
    packed: list[str] = []
    current: str | None = None
    for line in lines:
        joined = line if current is None else f"{current}\n{line}"
        if measure(joined) <= limit:
            current = joined
            continue
        if current is not None:
            packed.append(current)
        *whole, current = _cut(line, limit, measure, at_words=at_words)
        packed += whole
    return packed if current is None else [*packed, current]


def _cut(line: str, limit: int, measure: Measure, *, at_words: bool) -> list[str]:
    pieces: list[str] = []
    while measure(line) > limit:
        end = _longest_prefix(line, limit, measure)
        space = line.rfind(" ", 1, end + 1) if at_words else -1
        if space > 0 and line[:space].strip():
            pieces.append(line[:space])
            line = line[space + 1 :]
        else:
            pieces.append(line[:end])
            line = line[end:]
    return [*pieces, line]


def _longest_prefix(line: str, limit: int, measure: Measure) -> int:
    """Return the number of characters that fit. At least one, so that cutting always ends."""
    low, high = 1, min(len(line), max(1, limit))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if measure(line[:middle]) <= limit else (low, middle - 1)
    return low

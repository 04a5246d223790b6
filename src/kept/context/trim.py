"""Showing part of a text where all of it would be too much, and saying so. Pure."""

from __future__ import annotations

from kept.tokens import CHARS_PER_TOKEN, estimate_tokens, weigh
from kept.values import frozen

_HEAD_SHARE = 0.7


@frozen
class TrimmedText:
    """What was left out of a text."""

    name: str
    shown_tokens: int
    total_tokens: int
    from_line: int | None = None
    """The first line that is missing, where whole lines are."""

    def __str__(self) -> str:
        where = f", cut from line {self.from_line} on" if self.from_line else ""
        return f"{self.name}: {self.shown_tokens:,} of {self.total_tokens:,} tokens are in the context{where}."


def shorten(text: str, limit_tokens: int, where: str) -> str:
    """The beginning and the end of a text that is too long, and between them what is missing and where it is."""
    if weigh(text) <= limit_tokens * CHARS_PER_TOKEN:
        return text
    remark = f"\n[… {estimate_tokens(text) - limit_tokens:,} tokens left out here; {where} …]\n"
    room = max(0, limit_tokens - estimate_tokens(remark))
    head = round(room * _HEAD_SHARE)
    return f"{_head(text, head)}{remark}{_tail(text, room - head)}"


def shorten_lines(name: str, text: str, limit_tokens: int) -> tuple[str, TrimmedText | None]:
    """The same by whole lines: the beginning of a note says what it is, its end is what was added last."""
    total = estimate_tokens(text)
    if total <= limit_tokens:
        return text, None
    lines = text.split("\n")
    head = _fitting(lines, round(limit_tokens * _HEAD_SHARE))
    tail = _fitting(lines[head:][::-1], limit_tokens - round(limit_tokens * _HEAD_SHARE))
    shown = (*lines[:head], *(lines[-tail:] if tail else ()))
    if not shown:  # its lines are longer than what fits
        kept = shorten(text, limit_tokens, f"it stands in full in {name}")
        return kept, TrimmedText(name, min(limit_tokens, estimate_tokens(kept)), total)
    remark = f"[… lines {head + 1} to {len(lines) - tail} of {name} are left out here …]"
    kept = "\n".join((*shown[:head], remark, *shown[head:]))
    return kept, TrimmedText(name, estimate_tokens("\n".join(shown)), total, head + 1)


def _fitting(lines: list[str], limit_tokens: int) -> int:
    left = limit_tokens * CHARS_PER_TOKEN
    for count, line in enumerate(lines):
        left -= weigh(line) + 1
        if left < 0:
            return count
    return len(lines)


def _head(text: str, limit_tokens: int) -> str:
    return text[: _fitting_chars(text, limit_tokens)]


def _tail(text: str, limit_tokens: int) -> str:
    count = _fitting_chars(text[::-1], limit_tokens)
    return text[len(text) - count :]


def _fitting_chars(text: str, limit_tokens: int) -> int:
    """How many characters from the start fit. Found by halving: some characters weigh more than others."""
    low, high = 0, min(len(text), limit_tokens * CHARS_PER_TOKEN)
    while low < high:
        middle = (low + high + 1) // 2
        if weigh(text[:middle]) <= limit_tokens * CHARS_PER_TOKEN:
            low = middle
        else:
            high = middle - 1
    return low

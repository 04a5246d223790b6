"""Shorten a text that is too long, and mark what was left out. Pure."""

from __future__ import annotations

from kept.limits import CHARS_PER_TOKEN, estimate_tokens, weigh
from kept.values import frozen

_HEAD_SHARE = 0.7


@frozen
class TrimmedText:
    """Record of a text that is shown in part."""

    name: str
    shown_tokens: int
    total_tokens: int
    from_line: int | None = None
    """First missing line, if whole lines are missing."""

    def __str__(self) -> str:
        position = f", cut from line {self.from_line} on" if self.from_line else ""
        return f"{self.name}: {self.shown_tokens:,} of {self.total_tokens:,} tokens are in the context{position}."


def shorten(text: str, limit_tokens: int, note: str) -> str:
    """Return the beginning and the end of a text that is too long, with a remark between them.

    ``note`` is part of that remark, such as where to find the whole text.
    """
    if weigh(text) <= limit_tokens * CHARS_PER_TOKEN:
        return text
    remark = f"\n[… {estimate_tokens(text) - limit_tokens:,} tokens left out here; {note} …]\n"
    room = max(0, limit_tokens - estimate_tokens(remark))
    head = round(room * _HEAD_SHARE)
    return f"{_head(text, head)}{remark}{_tail(text, room - head)}"


def shorten_lines(name: str, text: str, limit_tokens: int) -> tuple[str, TrimmedText | None]:
    """Shorten a note by whole lines, and report what was left out.

    The beginning says what the note is about, and the end was added last, so both are kept.
    """
    total = estimate_tokens(text)
    if total <= limit_tokens:
        return text, None
    lines = text.split("\n")
    head = _count_fitting(lines, round(limit_tokens * _HEAD_SHARE))
    tail = _count_fitting(lines[head:][::-1], limit_tokens - round(limit_tokens * _HEAD_SHARE))
    shown = (*lines[:head], *(lines[-tail:] if tail else ()))
    if not shown:  # not even one line fits
        kept = shorten(text, limit_tokens, f"the full text is in {name}")
        return kept, TrimmedText(name, min(limit_tokens, estimate_tokens(kept)), total)
    remark = f"[… lines {head + 1} to {len(lines) - tail} of {name} are left out here …]"
    kept = "\n".join((*shown[:head], remark, *shown[head:]))
    return kept, TrimmedText(name, estimate_tokens("\n".join(shown)), total, head + 1)


def _count_fitting(lines: list[str], limit_tokens: int) -> int:
    left = limit_tokens * CHARS_PER_TOKEN
    for count, line in enumerate(lines):
        left -= weigh(line) + 1
        if left < 0:
            return count
    return len(lines)


def _head(text: str, limit_tokens: int) -> str:
    return text[: _count_fitting_chars(text, limit_tokens)]


def _tail(text: str, limit_tokens: int) -> str:
    count = _count_fitting_chars(text[::-1], limit_tokens)
    return text[len(text) - count :]


def _count_fitting_chars(text: str, limit_tokens: int) -> int:
    """Return how many leading characters fit. Binary search, because characters of some scripts count more."""
    low, high = 0, min(len(text), limit_tokens * CHARS_PER_TOKEN)
    while low < high:
        middle = (low + high + 1) // 2
        if weigh(text[:middle]) <= limit_tokens * CHARS_PER_TOKEN:
            low = middle
        else:
            high = middle - 1
    return low

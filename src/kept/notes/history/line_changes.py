"""Changes of a text by lines: shown as a unified diff, or taken back although later changes touched other lines. Pure.

A three-way merge of the usual kind refuses changes of neighbouring lines. Here they are allowed: entries of a log are
appended one after another, and taking back the first of two is the common case. Only changes of the same lines, or an
insertion inside lines that would go, are conflicts.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from kept.base.values import frozen

_SHOWN_CHARS = 60
_CONTEXT_LINES = 2


@frozen
class LineHunk:
    """Lines from ``start`` to ``end`` (counted from 0) that are replaced by others."""

    start: int
    end: int
    lines: tuple[bytes, ...]


class LinesOverlap(Exception):
    """A later change touched the lines that would be taken back. ``text`` is the first of them."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def split_lines(text: bytes) -> list[bytes]:
    """Return the lines with their line ends."""
    lines = text.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def plan_hunks(old: Sequence[bytes], new: Sequence[bytes]) -> list[LineHunk]:
    """Return the differences between two texts, as hunks of the old one."""
    first, last = count_common_ends(old, new)
    middle, other = old[first : len(old) - last], new[first : len(new) - last]
    matcher = difflib.SequenceMatcher(None, middle, other, autojunk=False)
    return [
        LineHunk(first + start, first + end, tuple(other[new_start:new_end]))
        for kind, start, end, new_start, new_end in matcher.get_opcodes()
        if kind != "equal"
    ]


def take_back(before: bytes, after: bytes, current: bytes) -> bytes:
    """Return the current text without the change that led from ``before`` to ``after``.

    Raise LinesOverlap if a later change touched the same lines.
    """
    if current == after:
        return before
    lines = split_lines(after)
    backward = plan_hunks(lines, split_lines(before))
    later = plan_hunks(lines, split_lines(current))
    later = [hunk for hunk in later if hunk not in backward]  # taken back by hand already
    for hunk in backward:
        for other in later:
            if overlap(hunk, other):
                line = max(hunk.start, other.start)
                raise LinesOverlap(_show(lines[line : line + 1] or hunk.lines[:1]))
    result: list[bytes] = []
    position = 0
    for hunk in sorted([*backward, *later], key=lambda hunk: (hunk.start, hunk.end)):
        result += [*lines[position : hunk.start], *hunk.lines]
        position = max(position, hunk.end)
    return b"".join(result + lines[position:])


def overlap(hunk: LineHunk, other: LineHunk) -> bool:
    """Return whether two changes touch the same lines. An insertion touches only lines that surround it."""
    if hunk.start == hunk.end:
        return other.start < hunk.start < other.end
    if other.start == other.end:
        return hunk.start < other.start < hunk.end
    return max(hunk.start, other.start) < min(hunk.end, other.end)


def _show(lines: Sequence[bytes]) -> str:
    text = b"".join(lines).decode("utf-8", "replace").strip()
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


# comparing: lines that two texts share at both ends need no look


def count_common_ends(old: Sequence[object], new: Sequence[object]) -> tuple[int, int]:
    """Return how many items are the same in both: at the start, and at the end of the rest."""
    head = _count_common(old, new)
    rest = min(len(old), len(new)) - head
    return head, _count_common(old[len(old) - rest :][::-1], new[len(new) - rest :][::-1])


def _count_common(first: Sequence[object], second: Sequence[object]) -> int:
    differences = (at for at, (left, right) in enumerate(zip(first, second, strict=False)) if left != right)
    return next(differences, min(len(first), len(second)))


# showing


def diff_versions(before: bytes | None, after: bytes | None, old_path: str, path: str) -> str:
    if before == after:
        return f"rename from {old_path}\nrename to {path}\n" if old_path != path else ""
    old, new = ([line.decode("utf-8", "replace") for line in split_lines(text or b"")] for text in (before, after))
    names = "/dev/null" if before is None else old_path, "/dev/null" if after is None else path
    lines = difflib.unified_diff(old, new, *names, n=_CONTEXT_LINES)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

"""Receipts of compactions: which lines left the context, and the hash of these lines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from kept.sessions.transcript import RawLine

LineRanges = Sequence[tuple[int, int]]
"""First and last line of each range."""


def is_receipt(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Check the shape: anyone who appends a compaction can store anything as its receipt."""
    if not isinstance(value, Mapping) or not {"path", "lines", "sha256", "searchable"} <= set(value):
        return False
    ranges = value["lines"]
    return isinstance(ranges, list) and all(
        isinstance(line_range, list) and [type(number) for number in line_range] == [int, int] for line_range in ranges
    )


def ranges_of(receipt: Mapping[str, Any]) -> LineRanges:
    return [(first, last) for first, last in receipt["lines"]]


def hash_lines(lines: Iterable[RawLine], ranges: LineRanges) -> str:
    """Return the SHA-256 of some lines of a transcript, byte for byte."""
    digest = hashlib.sha256()
    for line in lines:
        if any(first <= line.number <= last for first, last in ranges):
            digest.update(line.raw)
    return digest.hexdigest()

"""Where a secret stands in a text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

Span = tuple[int, int]
"""Start and end of a secret."""


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern on first use. Most texts need none of them."""
    return re.compile(pattern)


def merge(spans: Iterable[Span]) -> list[Span]:
    """Sort the spans and join those that touch or overlap."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged

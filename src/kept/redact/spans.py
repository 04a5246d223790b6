"""Spans of secrets in a text, and the compiled patterns that find them."""

from __future__ import annotations

import re
from functools import cache

Span = tuple[int, int]
"""Start and end of a secret."""


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern on first use. Most texts need none of them."""
    return re.compile(pattern)

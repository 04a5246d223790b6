"""The range of values that every part of Kept can store and show. Readers of files and providers check against it."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator
from typing import Any, TypeGuard

MAX_COUNT = 10**12
"""The largest believable count in a file. Sums of millions of them still fit a 64-bit column."""
MAX_TOKENS = 10**9
"""The largest believable number of tokens of one call: a hundred times the largest context window."""
INT64_MAX = (1 << 63) - 1

UNKNOWN_TIME = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
"""Replaces a time that is out of range."""
# A clock that was reset to 1970 is in range, in every time zone.
_FIRST = UNKNOWN_TIME - dt.timedelta(days=1)
_LAST = dt.datetime(2200, 1, 1, tzinfo=dt.UTC)
_FIRST_MS, _LAST_MS = _FIRST.timestamp() * 1000, _LAST.timestamp() * 1000


def is_count(value: Any, limit: int = MAX_COUNT) -> TypeGuard[int]:
    """Return whether a value is an int from 0 to ``limit``. A bool is not an int here."""
    return type(value) is int and 0 <= value <= limit


def count_or_zero(value: Any, limit: int = MAX_COUNT) -> int:
    """Return a count, or 0 for anything else: a number that cannot be true counts as not given."""
    return value if is_count(value, limit) else 0


def is_amount(value: Any) -> TypeGuard[float]:
    """Return whether a value is a finite number of believable size, negative or not."""
    return type(value) in (int, float) and math.isfinite(value) and abs(value) <= MAX_COUNT


def int64(number: int) -> int:
    """Return a number within what a column can hold. Some file systems have times after 2262 and inodes of 64 bits."""
    if -INT64_MAX <= number <= INT64_MAX:
        return number
    return INT64_MAX if number > 0 else -INT64_MAX


def is_time(when: dt.datetime) -> bool:
    """Return whether a time has an offset and is in range in UTC, so that every conversion of it works."""
    if when.tzinfo is None:
        return False
    # Comparing with an offset is slow, and every line of a transcript has a time.
    return _FIRST.year + 1 < when.year < _LAST.year - 1 or _FIRST <= when <= _LAST


def time_from_ms(ms: int) -> dt.datetime:
    """Return the local time of milliseconds since 1970; UNKNOWN_TIME if they are out of range."""
    in_range = _FIRST_MS <= ms <= _LAST_MS
    return (dt.datetime.fromtimestamp(ms / 1000, dt.UTC) if in_range else UNKNOWN_TIME).astimezone()


# JSON


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


strict_json = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
"""Refuses NaN and Infinity, which are not JSON, and 1e999, which would become one of them."""


def is_deep(tree: Any, max_depth: int) -> bool:
    """Return whether a JSON value is nested deeper than that. Writing it again could exceed Python's own limit."""
    level = [tree]
    for _ in range(max_depth):
        level = [inner for group in level for inner in _groups_in(group)]
        if not level:
            return False
    return True


def _groups_in(tree: Any) -> Iterator[Any]:
    values = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return (value for value in values if isinstance(value, dict | list))

"""The range of values that every part of Kept can store and show, and the size of a text.

Readers of files and providers check numbers, times and JSON against it. Text is made fit for it: valid UTF-8, one line,
a limited length. Tokens are estimated without a tokenizer: four characters each, one in dense scripts.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import re
from bisect import bisect_right
from functools import cache
from typing import Any, TypeGuard

from kept.errors import UsageError

# numbers and times

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


def ms_from_time(when: dt.datetime) -> int:
    """Return milliseconds since 1970; 0 for a time that is out of range."""
    return int(when.timestamp() * 1000 + 0.5) if is_time(when) else 0


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


def read_object(data: bytes) -> dict[str, Any]:
    """Return the object of a JSON text, empty for anything else."""
    try:
        return as_dict(strict_json.decode(data.decode("utf-8")))
    except (ValueError, RecursionError):
        return {}


def is_deep(tree: Any, max_depth: int) -> bool:
    """Return whether a JSON value is nested deeper than that. Writing it again could exceed Python's own limit."""
    level = [tree]
    for _ in range(max_depth):
        groups = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [inner for group in groups for inner in group if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def as_dict(value: Any) -> dict[str, Any]:
    """Return a value if it is an object of JSON, or else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a value if it is a list, or else an empty one."""
    return value if isinstance(value, list) else []


def text_or_empty(value: Any) -> str:
    """Return a value if it is text, or else an empty text."""
    return value if isinstance(value, str) else ""


# text


def one_line(text: str) -> str:
    """Return a text as one line, each run of white space as a single space."""
    return " ".join(text.split())


def printable_line(text: str) -> str:
    """Return a text as one line without control characters, such as those a terminal would obey."""
    return one_line("".join(char if char.isprintable() else " " for char in text))


def clip(text: str, max_chars: int) -> str:
    """Return a text of at most ``max_chars`` characters, with an ellipsis where it was cut."""
    return text if len(text) <= max_chars else text[: max_chars - 1].rstrip() + "…"


def utf8_path(path: str) -> str:
    """Return a path for people, with U+FFFD in place of bytes that are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")


def is_utf8(text: str) -> bool:
    """Return whether a text can be encoded. A lone surrogate, which JSON and argv can hold, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def utf8_safe(text: str) -> str:
    """Return a text with its surrogate pairs joined and U+FFFD in place of each lone surrogate."""
    return text if is_utf8(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def utf8_safe_tree(value: Any) -> Any:
    """Return a JSON value whose texts and names are all `utf8_safe`."""
    match value:
        case str():
            return utf8_safe(value)
        case dict():
            return {utf8_safe_tree(name): utf8_safe_tree(inner) for name, inner in value.items()}
        case list() | tuple():
            return type(value)(map(utf8_safe_tree, value))
        case _:
            return value


# tokens

CHARS_PER_TOKEN = 4


@cache
def _dense_script() -> re.Pattern[str]:
    """Return the pattern, compiled on first use: that takes milliseconds, and a search does not need it.

    These are nearly the ranges of `words.segment.UNSPACED`. They must not change with it: chunking depends on them,
    and has its own `CHUNKER_VERSION`.
    """
    return re.compile(
        "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
        "\uf900-\ufaff\U00020000-\U0003ffff]"
    )


def weigh(text: str) -> int:
    """Return the length in quarter tokens. These add up exactly, unlike tokens rounded for each part."""
    if text.isascii():
        return len(text)
    dense = len(_dense_script().findall(text))
    return len(text) + dense * (CHARS_PER_TOKEN - 1)


def estimate_tokens(text: str) -> int:
    """Return the length in tokens, rounded up."""
    return -(-weigh(text) // CHARS_PER_TOKEN)


_HEAD_SHARE = 0.7


def shorten(text: str, limit_tokens: int, note: str) -> str:
    """Return the beginning and the end of a text that is too long, with a remark between them.

    ``note`` is part of that remark, such as where to find the whole text.
    """
    if weigh(text) <= limit_tokens * CHARS_PER_TOKEN:
        return text
    remark = f"\n[… {estimate_tokens(text) - limit_tokens:,} tokens left out here; {note} …]\n"
    room = max(0, limit_tokens - estimate_tokens(remark))
    head_tokens = round(room * _HEAD_SHARE)
    head_chars = _count_fitting_chars(text, head_tokens)
    tail_chars = _count_fitting_chars(text[::-1], room - head_tokens)
    return f"{text[:head_chars]}{remark}{text[len(text) - tail_chars :]}"


def _count_fitting_chars(text: str, limit_tokens: int) -> int:
    """Return how many leading characters fit. Binary search, because characters of some scripts count more."""
    limit = limit_tokens * CHARS_PER_TOKEN
    lengths = range(1, min(len(text), limit) + 1)
    return bisect_right(lengths, limit, key=lambda length: weigh(text[:length]))


# arguments


def require_number(name: str, value: float | None, least: int, most: int | None, *, whole: bool = False) -> None:
    """Raise UsageError if an argument is given and is not a number between the limits."""
    if value is None:
        return
    kinds = int if whole else (int, float)
    top = math.inf if most is None else most
    if not isinstance(value, kinds) or isinstance(value, bool) or not least <= value <= top:
        limits = f"at least {least}" if most is None else f"from {least} to {most}"
        raise UsageError(f"{name} is {value!r:.80}.", hint=f"Use a {'whole ' if whole else ''}number {limits}.")


def require_text(**arguments: str | None) -> None:
    """Raise UsageError if an argument is given and is not text, or text that nothing can match."""
    for name, value in arguments.items():
        if value is None:
            continue
        if not isinstance(value, str):
            raise UsageError(f"The {name} is {value!r:.80}.", hint="Use text.")
        if name not in ("query", "session_key") and not is_utf8(value):
            raise UsageError(f"The {name} is not valid text, so nothing can match it.", hint="Write it in UTF-8.")

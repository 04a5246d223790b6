"""Removes lines from a note, in whatever encoding and with whatever line ends it has. The rest stays to the byte."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kept.errors import PathRefused
from kept.workspace.opened import declared_encoding

_LINE = r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z"
_CODECS = {
    b"\xff\xfe\0\0": "utf-32-le",  # before UTF-16, which begins the same
    b"\0\0\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}


def remove_lines(raw: bytes, ranges: Iterable[tuple[int, int]], path: str) -> bytes:
    """Return a note without lines, given as first and last of each range, counted from 1.

    Of two blank lines that would meet, the second goes too. Raise PathRefused for a note that cannot be read and
    written back unchanged.
    """
    codec = _codec_of(raw)
    try:
        text = raw.decode(codec, "surrogateescape" if codec == "utf-8" else "strict")
        lines = re.findall(_LINE, text)
    except UnicodeError:
        raise PathRefused(f"{path}: cannot be read as {codec}.", hint="Change it with an editor.") from None
    dropped: set[int] = set()
    for first, last in ranges:
        dropped.update(range(first, last + 1))
        before, after = first - 1, last + 1
        is_blank_before = before < 1 or not lines[before - 1].strip()
        if is_blank_before and after <= len(lines) and not lines[after - 1].strip():
            dropped.add(after)
    remaining = "".join(line for number, line in enumerate(lines, 1) if number not in dropped)
    if codec != "utf-8" and not remaining.startswith("\ufeff"):
        remaining = f"\ufeff{remaining}"  # the byte order mark was before the first line, which is gone
    elif raw.startswith(b"\xef\xbb\xbf") and not remaining.startswith("\ufeff"):
        remaining = f"\ufeff{remaining}"
    return remaining.encode(codec, "surrogateescape" if codec == "utf-8" else "strict")


def _codec_of(raw: bytes) -> str:
    if declared_encoding(raw) is None:
        return "utf-8"
    return next(codec for mark, codec in _CODECS.items() if raw.startswith(mark))

"""Merges two versions of a note, in whatever encoding and with whatever line ends they have. Pure.

The entries of a daily note are merged one by one (`day_merge`), any other text by lines (`passage_merge`).
"""

from __future__ import annotations

from kept.working_copy.day_entries import is_entry_log
from kept.working_copy.day_merge import merge_days
from kept.working_copy.passage_merge import MergedText, MergeHosts, Sides, merge_lines
from kept.workspace.opened import declared_encoding

_CODECS = {
    b"\xff\xfe\0\0": "utf-32-le",  # before UTF-16, which begins the same
    b"\0\0\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}


def merge_text(sides: Sides, hosts: MergeHosts, *, is_daily: bool = False, comments: bool = True) -> MergedText | None:
    """Return two versions of a text as one, or None if they are not text.

    ``comments`` marks passages that both changed with HTML comments, otherwise with '#'.
    """
    if sides.ours == sides.theirs or sides.theirs == sides.base:
        return MergedText(sides.ours)
    if sides.ours == sides.base:
        return MergedText(sides.theirs)
    codec = _find_codec(sides)
    if codec is None:
        return None
    if codec == "utf-8":
        return _merge_plain(sides, hosts, is_daily=is_daily, comments=comments)
    try:
        plain = sides.map(lambda side: _to_utf8(side, codec))
    except UnicodeError:
        return None
    merged = _merge_plain(plain, hosts, is_daily=is_daily, comments=comments)
    return MergedText(merged.data.decode().encode(codec), merged.conflicts)


# encodings and line ends


def _find_codec(sides: Sides) -> str | None:
    """Return the encoding that all versions have, or None if they differ or one is not text."""
    codecs = {_codec_of(side) for side in (sides.base, sides.ours, sides.theirs) if side}
    return codecs.pop() if len(codecs) == 1 else None


def _codec_of(data: bytes) -> str | None:
    if declared_encoding(data) is not None:
        return next(codec for mark, codec in _CODECS.items() if data.startswith(mark))
    return None if b"\0" in data else "utf-8"


def _to_utf8(data: bytes, codec: str) -> bytes:
    text = data.decode(codec)
    if text.encode(codec) != data:
        raise UnicodeError("cannot be written back unchanged")
    return text.encode()


def _merge_plain(sides: Sides, hosts: MergeHosts, *, is_daily: bool, comments: bool) -> MergedText:
    lines = sides.map(lambda side: _whole_lines(side.replace(b"\r\n", b"\n")))
    if is_daily and any(map(is_entry_log, (lines.base, lines.ours, lines.theirs))):
        merged = merge_days(lines, hosts)
    else:
        merged = merge_lines(lines, hosts, comments=comments)
    data = merged.data
    if not sides.ours.endswith(b"\n") and not sides.theirs.endswith(b"\n"):
        data = data.removesuffix(b"\n")
    newline = _choose_newline(sides)
    return MergedText(data.replace(b"\n", newline), merged.conflicts)


def _choose_newline(sides: Sides) -> bytes:
    """Return the line end of the merged text: that of the side that changed it, or of all."""
    ours = _newline_of(sides.ours)
    return ours if sides.base and ours != _newline_of(sides.base) else _newline_of(sides.theirs)


def _newline_of(data: bytes) -> bytes:
    return b"\r\n" if data.count(b"\r\n") * 2 > data.count(b"\n") else b"\n"


def _whole_lines(data: bytes) -> bytes:
    return data if not data or data.endswith(b"\n") else data + b"\n"

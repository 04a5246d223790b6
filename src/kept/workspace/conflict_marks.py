"""Marks around versions of a passage that two machines changed at once. Both stay in the note, each with its machine.

    <!-- version of harbour -->
    - The staging port is 5433.
    <!-- version of skerry -->
    - The staging port is 5434.
    <!-- end of versions -->

Where an HTML comment would be taken for data, as in front matter, the marks are lines that begin with '#'.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kept.values import frozen

_MARK = re.compile(rb"(?:<!-- |# )(?:version of (?P<host>[^\r\n]{1,80}?)|(?P<end>end of versions))(?: -->)?\r?\n?")


@frozen
class PassageVersion:
    """A passage as it reads on one machine, with line ends."""

    host: str
    lines: tuple[bytes, ...]


def format_versions(
    versions: Sequence[PassageVersion], *, newline: bytes = b"\n", comments: bool = True
) -> list[bytes]:
    """Return the lines of a marked block. ``comments`` marks with HTML comments, otherwise with '#'."""
    lead, tail = (b"<!-- ", b" -->") if comments else (b"# ", b"")
    lines: list[bytes] = []
    for version in versions:
        lines += [lead + b"version of " + version.host.encode() + tail + b"\n", *version.lines]
    return [*lines, lead + b"end of versions" + tail + b"\n"]


def read_versions(lines: Sequence[bytes]) -> list[PassageVersion] | None:
    """Return the versions of a marked block, or None if the lines are not exactly one block."""
    versions: list[PassageVersion] = []
    host, passage = "", []
    for number, line in enumerate(lines, 1):
        mark = _MARK.fullmatch(line)
        if mark is None:
            passage.append(line)
            continue
        if host:
            versions.append(PassageVersion(host, tuple(passage)))
        elif passage or number > 1:
            return None
        if mark["end"]:
            return versions if number == len(lines) and versions else None
        host, passage = mark["host"].decode("utf-8", "replace"), []
    return None


def find_versions(text: str) -> str | None:
    """Return a warning if a text has versions of a passage that somebody has to choose from, or None."""
    if "version of " not in text:
        return None
    start = 0
    for number, line in enumerate(text.split("\n"), 1):
        mark = _MARK.fullmatch(line.encode("utf-8", "replace"))
        if mark and mark["host"] and not start:
            start = number
        elif mark and mark["end"] and start:
            return f"line {start} begins versions of several machines; keep one of them, and delete the marks"
    return None

"""The entries of a daily note: what stands below each `## HH:MM`. Pure."""

from __future__ import annotations

import re

from kept.values import frozen

_HEADING = re.compile(rb"## +(\d{1,2}):(\d{2})(?=[ \t\r\n]|$)")
_FENCE = re.compile(rb" {0,3}(```|~~~)")


@frozen
class DayEntry:
    time: str
    """HH:MM, so that times can be compared as text."""
    text: bytes
    """The entry with its heading, without blank lines at its end."""

    def marked(self, host: str) -> DayEntry:
        """Return the entry with the name of a machine in its heading."""
        heading, newline, rest = self.text.partition(b"\n")
        mark = b" (" + host.encode() + b")"
        return self if heading.endswith(mark) else DayEntry(self.time, heading.rstrip() + mark + newline + rest)


@frozen
class EntryLog:
    opening: bytes
    """What stands before the first entry."""
    entries: tuple[DayEntry, ...]


def is_entry_log(data: bytes) -> bool:
    return b"## " in data and bool(read_entries(data).entries)


def read_entries(data: bytes) -> EntryLog:
    """Return the entries of a text with '\\n' line ends. A heading in a block of code begins none."""
    pieces: list[list[bytes]] = [[]]
    times = [""]
    fence = b""
    for line in data.split(b"\n"):
        if match := _FENCE.match(line):
            fence = b"" if fence == match[1] else fence or match[1]
        elif not fence and (heading := _HEADING.match(line)):
            pieces.append([])
            times.append(f"{int(heading[1]):02d}:{heading[2].decode()}")
        pieces[-1].append(line)
    texts = [b"\n".join(piece).rstrip() for piece in pieces]
    return EntryLog(texts[0], tuple(map(DayEntry, times[1:], texts[1:])))


def format_entries(log: EntryLog) -> bytes:
    return b"\n\n".join([*([log.opening] if log.opening else []), *(entry.text for entry in log.entries)]) + b"\n"

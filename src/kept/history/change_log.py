"""The lines of the history: appended at the end, read from the end, and searched by path."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from kept.history.history_folder import CHANGES, HistoryFolder
from kept.history.note_change import NoteChange, format_change, parse_change
from kept.values import frozen

ENDING = ".jsonl"
_BLOCK = 1 << 20
_FIRST_BLOCK = 1 << 14
"""Block to search first: what is searched for is often near the end."""
_OLDER_LINES = 64
"""Lines of an earlier time after which a reader stops: a clock may have been set back."""


@frozen
class LogPosition:
    """Position of a line in a file of the history."""

    name: str
    offset: int


class ChangeLog:
    """All lines of the history. Those of this machine can be appended to; each machine has a file of its own.

    A line that cannot be read is skipped, so the rest is still served.
    """

    def __init__(self, folder: HistoryFolder, machine: str) -> None:
        self.folder = folder
        self.machine = machine

    @property
    def own_name(self) -> str:
        return f"{self.machine}{ENDING}"

    def names(self) -> list[str]:
        return self.folder.names(CHANGES, ENDING)

    def append(self, changes: list[NoteChange]) -> None:
        """Append lines and return when they are on disk. The caller holds the lock of the workspace."""
        lead = b""
        with self.folder.reading(CHANGES, self.own_name) as handle:
            if handle is not None and (size := os.fstat(handle).st_size):
                # A line that a crash cut short stays a line by itself.
                lead = b"" if os.pread(handle, 1, size - 1) == b"\n" else b"\n"
        self.folder.append(CHANGES, self.own_name, lead + b"".join(map(format_change, changes)))

    def iter_newest(self, *, since: str | None = None) -> Iterator[NoteChange]:
        """Yield changes, newest first. Only the end of each file is read for the changes since a time."""
        import heapq  # not needed to record a change

        files = [self._iter_file(name, since) for name in self.names()]
        seen: set[str] = set()
        for change in heapq.merge(*files, key=lambda change: change.time, reverse=True):
            if change.id not in seen:  # a copy that a synchronising program made of a file
                seen.add(change.id)
                yield change

    def iter_oldest(self, name: str) -> Iterator[tuple[LogPosition, bytes, NoteChange | None]]:
        """Yield the lines of a file in order, each with its position and its change, None if it is damaged."""
        offset = 0
        machine = name.removesuffix(ENDING)
        with self.folder.reading(CHANGES, name) as handle:
            for line in _iter_lines(handle) if handle is not None else ():
                if line:
                    yield LogPosition(name, offset), line, parse_change(line, machine)
                offset += len(line) + 1

    def find_last(self, path: str) -> tuple[NoteChange | None, list[NoteChange]]:
        """Return the last change of a note on this machine, and the last on each other machine."""
        patterns = _patterns(path)
        own: NoteChange | None = None
        others: list[NoteChange] = []
        for name in self.names():
            change = self._find_last_in(name, path, patterns)
            if name == self.own_name:
                own = change
            elif change is not None:
                others.append(change)
        return own, others

    def _iter_file(self, name: str, since: str | None) -> Iterator[NoteChange]:
        machine = name.removesuffix(ENDING)
        older = 0
        with self.folder.reading(CHANGES, name) as handle:
            for line in _iter_lines_backwards(handle) if handle is not None else ():
                change = parse_change(line, machine)
                if change is None:
                    continue
                if since is None or change.time >= since:
                    older = 0
                    yield change
                    continue
                older += 1
                if older > _OLDER_LINES:
                    return

    def _find_last_in(self, name: str, path: str, patterns: tuple[bytes, ...]) -> NoteChange | None:
        with self.folder.reading(CHANGES, name) as handle:
            if handle is None:
                return None
            end = os.fstat(handle).st_size
            while end > 0:
                end, line = find_line_backwards(handle, end, patterns)
                change = parse_change(line, name.removesuffix(ENDING)) if line else None
                if change is not None and path in (change.path, change.was):
                    return change
        return None


def state_after(change: NoteChange, path: str) -> str | None:
    """Return the hash of a note after the change, or None if there is no note at that path."""
    return change.after if change.path == path else None


def _patterns(path: str) -> tuple[bytes, ...]:
    quoted = json.dumps(path, ensure_ascii=False).encode("utf-8", "replace")
    return b'"path":' + quoted, b'"was":' + quoted


def _iter_lines(handle: int) -> Iterator[bytes]:
    start, rest = 0, b""
    while block := os.pread(handle, _BLOCK, start):
        start += len(block)
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
    yield rest


def _iter_lines_backwards(handle: int) -> Iterator[bytes]:
    end = os.fstat(handle).st_size
    pieces: list[bytes] = []
    """Pieces of the line that the last block began in, the last piece first."""
    while end > 0:
        start = max(0, end - _BLOCK)
        lines = os.pread(handle, end - start, start).split(b"\n")
        end = start
        if len(lines) == 1:
            pieces.append(lines[0])
            continue
        yield b"".join([lines[-1], *reversed(pieces)])
        yield from reversed(lines[1:-1])
        pieces = [lines[0]]
    yield b"".join(reversed(pieces))


def find_line_backwards(handle: int, end: int, patterns: tuple[bytes, ...]) -> tuple[int, bytes]:
    """Return the start and the bytes of the last line before ``end`` that has a pattern, or 0 and nothing."""
    overlap = max(map(len, patterns)) - 1
    length = _FIRST_BLOCK
    while end > 0:
        start = max(0, end - length)
        length = min(4 * length, _BLOCK)
        block = os.pread(handle, end - start, start)
        match = max(block.rfind(pattern) for pattern in patterns)
        if match >= 0:
            return line_around(handle, start + match)
        end = start + overlap if start else 0
    return 0, b""


def line_around(handle: int, offset: int) -> tuple[int, bytes]:
    """Return the start and the bytes of the line that has this offset."""
    start = offset
    while start > 0:
        lower = max(0, start - 4096)
        newline = os.pread(handle, start - lower, lower).rfind(b"\n")
        if newline >= 0:
            start = lower + newline + 1
            break
        start = lower
    line = b""
    while block := os.pread(handle, 65_536, start + len(line)):
        newline = block.find(b"\n")
        line += block if newline < 0 else block[:newline]
        if newline >= 0:
            break
    return start, line

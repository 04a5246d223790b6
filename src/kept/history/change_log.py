"""The lines of the history: appended at the end, read from the end, and searched by path."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from kept.history.history_folder import CHANGES, HistoryFolder
from kept.history.note_change import NoteChange, format_change, parse_change

ENDING = ".jsonl"
_OLDER_LINES = 64
"""Lines of an earlier time after which a reader stops: a clock may have been set back."""


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
        """Yield changes, newest first. Only the last lines of each file are parsed for the changes since a time."""
        import heapq  # not needed to record a change

        files = [self._iter_file(name, since) for name in self.names()]
        seen: set[str] = set()
        for change in heapq.merge(*files, key=lambda change: change.time, reverse=True):
            if change.id not in seen:  # a copy that a synchronising program made of a file
                seen.add(change.id)
                yield change

    def iter_oldest(self, name: str) -> Iterator[NoteChange | None]:
        """Yield the change of each line of a file in order, None for a damaged line."""
        for line in self.folder.read(CHANGES, name).split(b"\n"):
            if line:
                yield parse_change(line)

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
        older = 0
        for line in reversed(self.folder.read(CHANGES, name).split(b"\n")):
            change = parse_change(line)
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
        data = self.folder.read(CHANGES, name)
        end = len(data)
        while (match := max(data.rfind(pattern, 0, end) for pattern in patterns)) >= 0:
            stop, end = data.find(b"\n", match), data.rfind(b"\n", 0, match) + 1
            change = parse_change(data[end : stop if stop >= 0 else None])
            if change is not None and path in (change.path, change.was):
                return change
        return None


def state_after(change: NoteChange, path: str) -> str | None:
    """Return the hash of a note after the change, or None if there is no note at that path."""
    return change.after if change.path == path else None


def _patterns(path: str) -> tuple[bytes, ...]:
    quoted = json.dumps(path, ensure_ascii=False).encode("utf-8", "replace")
    return b'"path":' + quoted, b'"was":' + quoted

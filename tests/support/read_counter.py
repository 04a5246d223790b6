"""Counts the bytes that are read from transcripts, below every buffer."""

from __future__ import annotations

import io

from kept.sessions import transcript


class ReadCounter:
    """Stands between `kept.sessions.transcript` and the disk, by the name of the builtin ``open`` in that module."""

    def __init__(self, monkeypatch) -> None:
        self.read = 0
        monkeypatch.setattr(transcript, "open", self.open, raising=False)

    def open(self, path: str, mode: str, buffering: int = 1 << 16, **options: object):
        raw = CountingFile(path, self)
        return io.BufferedReader(raw, buffering) if buffering else raw

    def take(self) -> int:
        """Return the bytes that were read since the last call."""
        read, self.read = self.read, 0
        return read


class CountingFile(io.FileIO):
    def __init__(self, path: str, counter: ReadCounter) -> None:
        super().__init__(path, "rb")
        self.counter = counter

    def readinto(self, buffer) -> int:
        count = super().readinto(buffer)
        self.counter.read += count
        return count

    def read(self, size: int = -1) -> bytes:
        data = super().read(size)
        self.counter.read += len(data)
        return data

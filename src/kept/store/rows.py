"""The rows of the index, as values."""

from __future__ import annotations

from kept.records import Source
from kept.values import frozen


@frozen
class FileRow:
    """What the index knows of a file."""

    source: Source
    path: str
    hash: str
    size: int
    mtime_ns: int
    ctime_ns: int
    checked_ns: int
    warning: str | None = None
    mark: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.source, self.path


@frozen
class NewChunk:
    """A chunk to be stored. ``words`` and ``context_words`` are what the full-text index sees."""

    id: str
    start_line: int
    end_line: int
    hash: str
    embed_hash: bytes
    model: str
    heading: str
    text: str
    words: str
    context_words: str
    timestamp_ms: int
    session_key: str | None = None
    channel: str | None = None


@frozen
class FileWrite:
    """A file and its chunks, replaced together: all of them, or those that begin behind a line."""

    file: FileRow
    chunks: tuple[NewChunk, ...]
    timestamp_ms: int | None = None
    """That of all chunks, where they share one."""
    after_line: int = 0


@frozen
class ChunkRow:
    row: int
    source: Source
    path: str
    start_line: int
    end_line: int
    hash: str
    heading: str
    text: str
    timestamp_ms: int
    session_key: str | None = None
    channel: str | None = None


@frozen
class KeywordMatch:
    """A chunk that has at least one of the words, with how often it has each, in its text and in its context."""

    row: int
    counts: tuple[tuple[int, int], ...]
    length: int


@frozen
class Counts:
    files: int
    chunks: int
    vectors: int
    by_source: dict[str, dict[str, int]]

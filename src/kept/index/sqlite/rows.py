"""The rows of an index: files and their chunks, as they are given to a store and as they come back."""

from __future__ import annotations

import hashlib

from kept.base.records import Source
from kept.base.values import frozen
from kept.index.sqlite.note_tables import NoteRow

SCHEMA_VERSION = 6
"""Incremented with generation.sql: an index of another version is rebuilt."""
META_RECIPE = "recipe"
"""Key of the parameters of the build: sizes, versions, and the embedder whose vectors the index holds."""


@frozen
class FileRow:
    """An indexed file. The fields are the columns of `files`."""

    source: Source
    path: str
    hash: str
    size: int
    mtime_ns: int
    ctime_ns: int
    checked_ns: int
    """Time of the last read that found this content."""
    warning: str | None = None
    mark: str | None = None
    """Checkpoint in a transcript, as JSON."""


@frozen
class NewChunk:
    """A chunk to store. The full-text index gets ``words`` and ``context_words``."""

    id: str
    start_line: int
    end_line: int
    hash: bytes
    """SHA-256 of the text."""
    embed_hash: bytes
    heading: str
    text: str
    words: str
    context_words: str
    timestamp_ms: int
    session_key: str | None = None
    channel: str | None = None
    is_recalled: bool = False


@frozen
class FileWrite:
    """A file and its chunks, replaced together: all chunks, or those that begin after a line."""

    file: FileRow
    chunks: tuple[NewChunk, ...]
    timestamp_ms: int | None = None
    """Timestamp of all chunks if it is that of the file. None if each chunk has its own, which stays when the file's
    changes: of an utterance, of an entry in a daily note, or of a note that says when it was created."""
    after_line: int = 0
    note: NoteRow | None = None
    """Names, tags and links. None for a transcript."""


@frozen
class ChunkRow:
    """A stored chunk. The fields are columns of `chunks`, in the order of `_CHUNK_COLUMNS`."""

    row: int
    source: Source
    path: str
    start_line: int
    end_line: int
    hash: bytes
    heading: str
    text: str
    timestamp_ms: int
    session_key: str | None = None
    channel: str | None = None
    is_recalled: int = 0
    """1 for an answer that an agent gave from memory."""


@frozen
class IndexCounts:
    files: int
    chunks: int
    vectors: int
    by_source: dict[str, dict[str, int]]


def content_key(chunk: NewChunk, *, with_time: bool) -> bytes:
    """Return a hash of all that is stored for a chunk."""
    parts = (
        chunk.id,
        chunk.embed_hash.hex(),
        chunk.heading,
        chunk.session_key or "",
        chunk.channel or "",
        "recalled" if chunk.is_recalled else "",
        str(chunk.timestamp_ms) if with_time else "",
        chunk.context_words,
        chunk.words,
    )
    return hashlib.blake2b("\n".join(parts).encode("utf-8", "replace"), digest_size=16).digest()

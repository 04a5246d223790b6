"""From the text of a note to the rows of the index. Pure."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import replace

from kept.chunking.markdown import CHUNKER_VERSION, ChunkSize, cut_note, note_name
from kept.chunking.utterances import TRANSCRIPT_CHUNKER_VERSION
from kept.records import Chunk, SourceFile
from kept.redact import REDACTION_VERSION
from kept.store.generation import SCHEMA_VERSION, FileRow, FileWrite, NewChunk
from kept.values import frozen
from kept.words.segment import SEGMENTER_VERSION, segment, segment_context
from kept.workspace.opened import NoteText
from kept.workspace.workspace import DAILY_NOTE

CUT_PLAINLY = "too many lines, headings or nested blocks; cut by lines, without its headings"


@frozen
class Recipe:
    """Everything that determines the index of a text. When it changes, the index is rebuilt."""

    size: ChunkSize
    identity: str | None
    model: str | None

    def fingerprint(self) -> dict[str, object]:
        return {
            "schema": SCHEMA_VERSION,
            "chunker": CHUNKER_VERSION,
            "transcript_chunker": TRANSCRIPT_CHUNKER_VERSION,
            "redaction": REDACTION_VERSION,
            "segmenter": SEGMENTER_VERSION,
            "tokens": self.size.tokens,
            "overlap": self.size.overlap,
            "identity": self.identity,
            "model": self.model,
        }


@frozen
class PreparedFile:
    write: FileWrite
    embed_texts: dict[bytes, str]
    """Texts to embed, by hash."""


def prepare_file(file: SourceFile, note: NoteText, recipe: Recipe, *, checked_ns: int) -> PreparedFile:
    row = file_row(file, note, checked_ns=checked_ns)
    day = daily_date(file.path)
    timestamp_ms = note_timestamp_ms(file.path, note.mtime_ns)
    model = recipe.model or "none"
    chunks: list[NewChunk] = []
    embed_texts: dict[bytes, str] = {}
    cut = cut_note(note.text, name=file.path, size=recipe.size)
    if cut.plain:
        row = replace(row, warning=row.warning or CUT_PLAINLY)
    for chunk in cut.chunks:
        digest = sha256_hex(chunk.text)
        embed_hash = sha256(chunk.embed_text)
        embed_texts[embed_hash] = chunk.embed_text
        chunks.append(
            NewChunk(
                id=chunk_id(file, chunk.start_line, chunk.end_line, digest, model),
                start_line=chunk.start_line,
                end_line=chunk.end_line,
                hash=digest,
                embed_hash=embed_hash,
                model=model,
                heading=chunk.heading,
                text=chunk.text,
                words=segment(chunk.text),
                context_words=segment_context(_context(chunk, file.path, day), chunk.text),
                timestamp_ms=timestamp_ms,
            )
        )
    return PreparedFile(FileWrite(row, tuple(chunks), timestamp_ms), embed_texts)


def file_row(file: SourceFile, note: NoteText, *, checked_ns: int) -> FileRow:
    return FileRow(
        source=file.source,
        path=file.path,
        hash=hashlib.sha256(note.raw).hexdigest(),
        size=note.size,
        mtime_ns=note.mtime_ns,
        ctime_ns=note.ctime_ns,
        checked_ns=checked_ns,
        warning=note.warning,
    )


def chunk_id(file: SourceFile, start_line: int, end_line: int, digest: str, model: str) -> str:
    return sha256_hex(f"{file.source}:{file.path}:{start_line}:{end_line}:{digest}:{model}")


def sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


def sha256_hex(text: str) -> str:
    return sha256(text).hex()


def _context(chunk: Chunk, path: str, day: dt.date | None) -> str:
    """Return the words around a chunk: its headings and the name or date of its note. They are found by word only; if
    they were embedded, renaming a note would cost a call."""
    return f"{chunk.heading} {date_in_words(day) if day else note_name(path)}".strip()


def date_in_words(day: dt.date) -> str:
    return f"{day:%Y-%m-%d %A %d %B %Y}"


def daily_date(path: str) -> dt.date | None:
    match = DAILY_NOTE.search(path)
    if not match:
        return None
    try:
        return dt.date.fromisoformat(match.group(1))
    except ValueError:
        return None


def note_timestamp_ms(path: str, mtime_ns: int) -> int:
    """Return when a note was written: the day it is named after, else when the file was last changed."""
    day = daily_date(path)
    if day is None:
        return mtime_ns // 1_000_000
    try:
        midnight = dt.datetime(day.year, day.month, day.day).astimezone()
    except (OverflowError, OSError, ValueError):  # the year 1 has no local time
        return mtime_ns // 1_000_000
    return int(midnight.timestamp() * 1000)

"""From the text of a note to the rows of the index. Pure."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import replace

from kept.chunking.markdown import CHUNKER_VERSION, ChunkSize, CutNote, cut_note, note_name
from kept.chunking.utterances import TRANSCRIPT_CHUNKER_VERSION
from kept.indexing.note_times import daily_date, entry_timestamp_ms, note_timestamp_ms
from kept.records import Chunk, SourceFile
from kept.redact import REDACTION_VERSION
from kept.store.generation import SCHEMA_VERSION, FileRow, FileWrite, NewChunk
from kept.values import frozen
from kept.words.segment import SEGMENTER_VERSION, segment, segment_context
from kept.workspace.daily import KEPTS_OWN, DailyNotes
from kept.workspace.opened import NoteText

CUT_PLAINLY = "too many lines, headings or nested blocks; cut by lines, without its headings"


@frozen
class Recipe:
    """Everything that determines the index of a text. When it changes, the index is rebuilt."""

    size: ChunkSize
    identity: str | None
    model: str | None
    daily: DailyNotes = KEPTS_OWN

    def fingerprint(self) -> dict[str, object]:
        # Only if it differs: an index that was built before vaults could be adopted stays as it is.
        daily = {} if self.daily.format == KEPTS_OWN.format else {"daily": [self.daily.folder, self.daily.format]}
        return {
            **daily,
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
    from kept.indexing.note_rows import make_note_row

    day = daily_date(file.path, recipe.daily)
    model = recipe.model or "none"
    chunks: list[NewChunk] = []
    embed_texts: dict[bytes, str] = {}
    cut = cut_note(note.text, name=file.path, size=recipe.size)
    warning = note.warning or (CUT_PLAINLY if cut.plain else None) or _warning(cut)
    row = replace(file_row(file, note, checked_ns=checked_ns), warning=warning)
    about = make_note_row(
        file.path, cut, day=day, file_timestamp_ms=note_timestamp_ms(file.path, note.mtime_ns, recipe.daily)
    )
    for chunk in cut.chunks:
        digest = sha256_hex(chunk.text)
        embed_hash = sha256(chunk.embed_text)
        embed_texts[embed_hash] = chunk.embed_text
        # The properties are no passage, so their words go with the first one: a search for a tag or a value finds it.
        own_words = f"{chunk.text} {cut.properties.words}" if cut.properties.words and not chunks else chunk.text
        context = _context(chunk, cut, file.path, day)
        entry_ms = entry_timestamp_ms(day, chunk.heading)
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
                words=segment(own_words),
                context_words=segment_context(context, chunk.text),
                timestamp_ms=about.timestamp_ms if entry_ms is None else entry_ms,
            )
        )
    shared_ms = None if about.is_dated else about.timestamp_ms
    return PreparedFile(FileWrite(row, tuple(chunks), shared_ms, note=about), embed_texts)


def _warning(cut: CutNote) -> str | None:
    if not cut.references.is_cut:
        return cut.properties.warning
    from kept.chunking.references import TOO_MANY

    return cut.properties.warning or TOO_MANY


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


def _context(chunk: Chunk, cut: CutNote, path: str, day: dt.date | None) -> str:
    """Return the words around a chunk: its headings, and the titles and the date of its note. They are found by word
    only; if they were embedded, renaming a note would cost a call."""
    name = date_in_words(day) if day else note_name(path)
    return " ".join(filter(None, (chunk.heading, name, cut.properties.title, *cut.properties.aliases)))


def date_in_words(day: dt.date) -> str:
    return f"{day:%Y-%m-%d %A %d %B %Y}"

"""Transcripts in the index: from their lines to chunks, and what of them is not indexed yet.

A transcript only grows, so its chunks are stored once. A `TranscriptCheckpoint` in the row of the file says up to which
line they are final; the next sync reads from there. A transcript that was changed in any other way is read from its
beginning, and so is one that got another title, because the words of the title go with its first chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING

from kept.base.records import Problem, SourceFile
from kept.base.redact import redact
from kept.base.words.segment import name_parts_in, segment
from kept.config import Config
from kept.errors import SessionError, WorkspaceError
from kept.index.chunking.utterances import UtteranceChunk, chunk_utterances, find_settled
from kept.index.note_rows import DATE_IN_WORDS
from kept.index.sqlite.rows import FileRow, FileWrite, NewChunk
from kept.sessions.echoes import EchoState
from kept.sessions.entries import Entry, SessionStart, is_message
from kept.sessions.session_key import find_key
from kept.sessions.spoken import Utterance, UtteranceReader, storable_text
from kept.sessions.transcript import (
    Damage,
    Position,
    ReadEnd,
    Transcript,
    TranscriptCheckpoint,
    TranscriptLine,
    digest_line,
    extend_hash,
    open_transcripts,
)

if TYPE_CHECKING:
    from kept.index.sqlite.generation import Generation

_BEGINNING = TranscriptCheckpoint(ReadEnd(0, 0, ""), final_line=0, resume_at=Position(), running_hash="", key="")

# resuming


def _find_checkpoint(transcript: Transcript, row: FileRow | None, file: SourceFile) -> TranscriptCheckpoint:
    """Return the checkpoint to resume from: the beginning if the transcript is new or has not only grown."""
    checkpoint = TranscriptCheckpoint.from_json(row.mark) if row and row.mark else None
    if row is None or checkpoint is None:
        return _BEGINNING
    if file.size == row.size and (file.mtime_ns, file.ctime_ns) != (row.mtime_ns, row.ctime_ns):
        return _BEGINNING  # written to without growing: changed in place, perhaps far from its end
    return checkpoint if transcript.has_only_grown(checkpoint.read, transcript.find()) else _BEGINNING


def hash_transcript(file: SourceFile, row: FileRow | None, config: Config) -> str:
    """Return the running hash of all lines. With a row, lines before its checkpoint are not read again."""
    transcript = open_transcripts(config).get(file.path)
    return _hash_from(transcript, _find_checkpoint(transcript, row, file))


def _hash_from(transcript: Transcript, checkpoint: TranscriptCheckpoint) -> str:
    running_hash = checkpoint.running_hash
    for line in transcript.iter_lines(checkpoint.resume_at):
        running_hash = extend_hash(running_hash, line.raw)
    return running_hash


def measure_growth(file: SourceFile, row: FileRow | None, config: Config) -> tuple[int, int]:
    """Return how many bytes and messages were added since the last sync: all, if the transcript is new or has not only
    grown."""
    try:
        transcript = open_transcripts(config).get(file.path)
        checkpoint = _find_checkpoint(transcript, row, file)
        size = messages = 0
        for line in transcript.iter_lines(checkpoint.resume_at):
            if line.start >= checkpoint.read.offset:
                size += line.end - line.start
                messages += is_message(line.content)
    except (SessionError, WorkspaceError):
        return 0, 0
    return size, messages


# chunks


def read_chunks(
    file: SourceFile, row: FileRow | None, config: Config, *, checked_ns: int, step_bytes: int
) -> Iterator[FileWrite | Problem | FileRow]:
    """Yield what there is to store, in order: chunks after each ``step_bytes`` read, so that an interrupted sync of a
    long transcript resumes in the middle. Yield a row alone if nothing but the file's state has changed."""
    transcript = open_transcripts(config).get(file.path)
    generation = transcript.find().generation
    start = _find_checkpoint(transcript, row, file)
    stored = TranscriptCheckpoint.from_json(row.mark) if row and row.mark else None
    if row is not None and stored is not None and _hash_from(transcript, start) == row.hash:
        moved = replace(stored, read=replace(stored.read, generation=generation))
        yield _make_row(file, checked_ns, row.hash, moved, row.warning)
        return
    warning = row.warning if row is not None and start is not _BEGINNING else None
    reader = _ChunkReader(file, transcript, generation, checked_ns, start, warning)
    yield from reader.iter_steps(step_bytes)
    if reader.is_renamed:
        again = _ChunkReader(file, transcript, generation, checked_ns, _BEGINNING, reader.warning)
        # Damaged lines are not reported twice.
        again.known_end, again.problems, again.final_title = reader.read_end, reader.problems, reader.titles.given
        yield from again.iter_steps(step_bytes)
        reader = again
    yield from reader.iter_step(is_last=True)


@dataclass
class _ChunkReader:
    """Cuts the lines of one transcript into chunks, from its beginning or from a checkpoint."""

    file: SourceFile
    transcript: Transcript
    generation: int
    """Generation of the log before it was read."""
    checked_ns: int
    checkpoint: TranscriptCheckpoint
    """Where the next sync resumes. It moves forward with each step."""
    warning: str | None
    final_title: str | None = None
    """Title at the end of the transcript, if it is known."""
    problems: list[str] = field(default_factory=list)
    utterances: list[Utterance] = field(default_factory=list)
    """Those that are not final yet, after those that are only their context."""
    starts: dict[int, tuple[Position, str, EchoState]] = field(default_factory=dict)
    """By line of an utterance: where it starts, and running hash and echo state of the lines before it."""

    def __post_init__(self) -> None:
        start = self.checkpoint
        self.titles = start.titles
        self.first_title = start.titles.given
        """Title whose words the first chunk has."""
        self.running_hash = start.running_hash
        """Hash of all lines that were read."""
        self.read_end, self.last_line = start.resume_at.offset, b""
        self.known_end = start.read.offset
        """End of what an earlier sync has read. Damaged lines before it were reported then."""
        self.reader = UtteranceReader(start.echoes)

    @property
    def is_renamed(self) -> bool:
        """Whether the first chunk is final and has the words of another title."""
        return self.checkpoint.final_line > 0 and self.first_title != self.titles.given

    def iter_steps(self, step_bytes: int) -> Iterator[FileWrite | Problem]:
        """Read to the end. Yield what there is to store on the way, without the last step."""
        step_start, end = self.read_end, self.transcript.storage.logs.end(self.transcript.log).offset
        for line in self.transcript.iter_lines(self.checkpoint.resume_at):
            self.add_line(line)
            if self.read_end - step_start >= step_bytes and self.read_end < end:
                step_start = self.read_end
                yield from self.iter_step(is_last=False)

    def add_line(self, line: TranscriptLine) -> None:
        hash_before, self.running_hash = self.running_hash, extend_hash(self.running_hash, line.raw)
        self.read_end, self.last_line = line.end, line.raw
        match line.content:
            case Damage() as damage if line.start >= self.known_end:
                self.problems.append(str(damage))
            case Entry(id=session_id, body=SessionStart() as session) if line.number == 1:
                self._start(session_id, session)
        self.titles = self.titles.after(line.content)
        echoes_before = self.reader.state
        utterance = self.reader.read(line)
        if utterance is not None:
            self.utterances.append(utterance)
            self.starts[utterance.line] = (Position(line.start, line.number - 1), hash_before, echoes_before)

    def _start(self, session_id: str, session: SessionStart) -> None:
        key = find_key(session.key)
        if key is None:
            return
        folder = session.metadata.get("cwd") if key.user_id == session_id else None
        # A client chooses the user's id, which may be a secret.
        heading = redact(storable_text(f"{key.channel}:{folder if isinstance(folder, str) else key.user_id}"))
        self.checkpoint = replace(self.checkpoint, key=str(key), heading=heading)

    def iter_step(self, *, is_last: bool) -> Iterator[FileWrite | Problem]:
        """Yield problems and the chunks to store after the previous final line, and move that line forward.

        Before the last step only final chunks: the next step yields the others, with their whole context.
        """
        after_line = self.checkpoint.final_line
        chunks = chunk_utterances(self.utterances, after_line=after_line)
        settled = find_settled(self.utterances, after_line=after_line)
        if not is_last:
            if settled is None:
                return
            chunks = [chunk for chunk in chunks if chunk.utterance.line <= settled.line]
        if not after_line:
            self.first_title = self.titles.given if self.final_title is None else self.final_title
        read = ReadEnd(self.generation, self.read_end, digest_line(self.last_line))
        self.checkpoint = replace(self.checkpoint, read=read, titles=self.titles)
        if settled is not None:
            resume_at, hash_before, echoes = self.starts[settled.resume_line]
            self.checkpoint = replace(
                self.checkpoint,
                final_line=settled.line,
                resume_at=resume_at,
                running_hash=hash_before,
                echoes=echoes,
            )
            self.utterances = [utterance for utterance in self.utterances if utterance.line >= settled.resume_line]
            self.starts = {utterance.line: self.starts[utterance.line] for utterance in self.utterances}
        self.warning = self.warning or next(iter(self.problems), None)
        yield from (Problem(self.file.path, reason) for reason in self.problems)
        self.problems = []
        row = _make_row(self.file, self.checked_ns, self.running_hash, self.checkpoint, self.warning)
        if not is_last:  # a size that differs from the file's makes the next sync read on, if this one ends here
            row = replace(row, size=self.read_end)
        titles = chain([] if after_line else [self.first_title], repeat(""))
        yield FileWrite(row, tuple(map(self._new_chunk, chunks, titles)), after_line=after_line)

    def _new_chunk(self, chunk: UtteranceChunk, title: str) -> NewChunk:
        utterance, heading, key = chunk.utterance, self.checkpoint.heading, find_key(self.checkpoint.key)
        channel = storable_text(key.channel) if key else None
        context = f"{heading} {utterance.day:{DATE_IN_WORDS}} {chunk.context}"
        return NewChunk(
            start_line=utterance.line,
            end_line=utterance.line,
            heading=heading,
            text=chunk.text,
            embed_text=chunk.embed_text,
            words=segment(f"{chunk.embed_text} {title}".strip()),
            context_words=f"{segment(context)} {name_parts_in(chunk.embed_text)}".strip(),
            timestamp_ms=utterance.timestamp_ms,
            session_key=self.checkpoint.key or None,
            channel=channel,
            is_recalled=utterance.is_recalled,
        )


def _make_row(
    file: SourceFile, checked_ns: int, digest: str, checkpoint: TranscriptCheckpoint, warning: str | None
) -> FileRow:
    times = (file.mtime_ns, file.ctime_ns, checked_ns)
    return FileRow(file.source, file.path, digest, file.size, *times, warning, checkpoint.to_json())


# what is missing


def find_unindexed(
    generation: Generation, config: Config, citation: str, *, first_line: int, last_line: int
) -> tuple[int, ...]:
    """Return the lines of a transcript that say something and are in no chunk."""
    spans = generation.spans("sessions", citation, first_line, last_line)
    covered = {line for start, end in spans for line in range(max(start, first_line), min(end, last_line) + 1)}
    missing, reader = [], UtteranceReader()
    for line in open_transcripts(config).get(citation).iter_lines():
        if line.number > last_line:
            break
        utterance = reader.read(line)
        is_said = utterance is not None and not utterance.is_context
        if is_said and line.number >= first_line and line.number not in covered:
            missing.append(line.number)
    return tuple(missing)

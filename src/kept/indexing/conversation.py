"""From a transcript to the rows that the index stores, and to what is shown of it.

A transcript is only ever added to, so what was taken in of it once stays. A `Mark` says up to which line its chunks are
final; of a transcript that has grown, only what stands behind is read. One that was changed in any other way is read
from its beginning.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from itertools import takewhile
from typing import Any

from kept.chunking.utterances import (
    Kind,
    Settled,
    Utterance,
    UtteranceChunk,
    chunk_utterances,
    find_settled,
    show_utterances,
)
from kept.errors import PathRefused, SessionError, SessionKeyInvalid, SessionNotFound, TranscriptUnreadable
from kept.indexing.planner import is_unchanged
from kept.indexing.prepare import PreparedFile, Recipe, chunk_id, date_in_words, sha256, sha256_hex
from kept.indexing.sources import CITED_FOLDER, is_transcript
from kept.indexing.triggers import Growth
from kept.limits import int64, is_storable
from kept.records import Passage, SourceFile
from kept.redact import redact
from kept.sessions.entries import (
    Attachment,
    Block,
    CompactionEntry,
    Entry,
    Message,
    ResetEntry,
    SessionStart,
    Text,
    ToolCall,
    ToolResult,
)
from kept.sessions.session_key import SessionKey, parse_key
from kept.sessions.transcript import Damage, Position, RawLine, Transcript, TranscriptLine, is_message, parse_line
from kept.store.generation import FileRow, FileWrite, NewChunk
from kept.values import frozen
from kept.words.segment import segment, segment_context

STEP_BYTES = 400_000
"""A long transcript is taken in by pieces of about this size, each of which is kept whatever happens to the next."""

_SHORT = 200
_LOOKED_AT = (1_000, 4_000)
"""Of what tools were told and answered: the beginning is enough, unless most of it is white space."""
_DAMAGE_NAMED = 10
_DEFAULT_LINES = 200
_MAX_PASSAGE_CHARS = 60_000
_LATEST_MS = 253_370_000_000_000
_SPEAKERS: dict[Kind, str] = {
    "user": "User",
    "assistant": "Assistant",
    "tool": "Tool",
    "system": "System",
    "summary": "Summary",
}


# how far a transcript was taken in


@frozen
class TranscriptCheckpoint:
    inode: int
    end: int
    """Behind the last line that was read."""
    seam: int
    """A hash of what stands before that: as long as it is the same, the transcript was added to and not changed."""
    settled: int
    """The chunks up to this line are final."""
    again: Position
    """Where to read from for what comes behind: a few lines earlier, which are its context."""
    chain: str
    """The hash of the lines before that."""
    key: str
    """Whose conversation it is. Empty when the first line is lost, which says so."""


def write_mark(mark: TranscriptCheckpoint) -> str:
    return json.dumps(asdict(mark), separators=(",", ":"))


def read_mark(row: FileRow | None) -> TranscriptCheckpoint | None:
    if row is None or row.mark is None:
        return None
    try:
        told = json.loads(row.mark)
        return TranscriptCheckpoint(**{**told, "again": Position(**told["again"])})
    except (ValueError, TypeError, KeyError):
        return None


def find_mark(file: SourceFile, row: FileRow | None, state: os.stat_result) -> TranscriptCheckpoint | None:
    """The mark to go on from; None when the transcript is new, or was not only added to."""
    mark = read_mark(row)
    if row is None or mark is None or mark.inode != state.st_ino or state.st_size < mark.end:
        return None
    times = int64(state.st_mtime_ns), int64(state.st_ctime_ns)
    if state.st_size == row.size and times != (row.mtime_ns, row.ctime_ns):
        return None
    return mark if Transcript(file.absolute).seam(mark.end) == mark.seam else None


def _link(chain: str, raw: bytes) -> str:
    """The hash of all lines up to this one, from that of those before it: it can be gone on with at any line."""
    return hashlib.sha256(chain.encode() + raw).hexdigest()


def hash_transcript(file: SourceFile, row: FileRow | None) -> str:
    """The hash of all its lines. With a row, those that it vouches for are not read again."""
    state = _state_of(file.absolute)
    mark = find_mark(file, row, state)
    chain = mark.chain if mark else ""
    for line in Transcript(file.absolute).iter_raw(mark.again if mark else None, stop=state.st_size):
        chain = _link(chain, line.raw)
    return chain


def measure_growth(file: SourceFile, row: FileRow | None) -> Growth:
    """What was added since: all of it, where the transcript is new or was changed in another way."""
    if row is not None and is_unchanged(file, row):
        return Growth()
    try:
        mark = find_mark(file, row, _state_of(file.absolute))
        end = mark.end if mark else 0
        again = mark.again if mark else None
        size = messages = 0
        for line in Transcript(file.absolute).iter_raw(again):
            if line.start >= end:
                size += len(line.raw)
                messages += is_message(parse_line(line))
    except SessionError:
        return Growth()
    return Growth(size, messages)


def _state_of(absolute: str) -> os.stat_result:
    try:
        return os.stat(absolute, follow_symlinks=False)
    except FileNotFoundError as exc:
        raise SessionNotFound(f"{absolute}: there is no such transcript.") from exc
    except OSError as exc:
        raise TranscriptUnreadable(f"{absolute}: cannot be read ({exc.strerror}).") from exc


# taking it in


@frozen
class TranscriptChunks:
    """Part of a transcript, ready to be stored, and what was wrong with its lines."""

    prepared: PreparedFile
    problems: tuple[str, ...]


def take_in(
    file: SourceFile, row: FileRow | None, recipe: Recipe, *, checked_ns: int
) -> Iterator[TranscriptChunks | FileRow]:
    """What there is to store, in order. A row alone where nothing but the file's state has changed."""
    state = _state_of(file.absolute)
    mark, known = find_mark(file, row, state), read_mark(row)
    if row is not None and known is not None and hash_transcript(file, row if mark else None) == row.hash:
        yield _row(file, state, checked_ns, row.hash, replace(known, inode=state.st_ino), row.warning)
        return
    reader = _UtteranceReader(file, recipe, state, checked_ns)
    if mark is not None and row is not None:
        reader.go_on(mark, row)
    yield from reader.pieces()


class _UtteranceReader:
    """One transcript while it is being taken in, from its beginning or from a mark on."""

    def __init__(self, file: SourceFile, recipe: Recipe, state: os.stat_result, checked_ns: int) -> None:
        self.file = file
        self.recipe = recipe
        self.state = state
        self.checked_ns = checked_ns
        self.transcript = Transcript(file.absolute)
        self.key = ""
        self.settled = 0
        self.again = Position()
        self.again_chain = self.chain = ""
        self.end = self.known_end = 0
        self.warning: str | None = None
        self.problems: list[str] = []
        self.turns: list[Utterance] = []
        """Those that are context only, and those that are not settled yet."""
        self.places: dict[int, tuple[Position, str]] = {}
        """By line: where a turn begins, and the hash of the lines before it."""
        self.begins = False

    def go_on(self, mark: TranscriptCheckpoint, row: FileRow) -> None:
        self.key, self.settled, self.again = mark.key, mark.settled, mark.again
        self.again_chain = self.chain = mark.chain
        self.end, self.known_end = mark.again.offset, mark.end
        self.warning = row.warning

    def pieces(self) -> Iterator[TranscriptChunks]:
        handed_on = self.end
        for raw in self.transcript.iter_raw(self.again, stop=self.state.st_size):
            self._add(raw)
            if self.end - handed_on >= STEP_BYTES and self.end < self.state.st_size:
                handed_on = self.end
                chunks = chunk_utterances(self.turns, after_line=self.settled)
                settled = find_settled(self.turns, after_line=self.settled)
                if settled is not None:
                    yield self._take([one for one in chunks if one.line <= settled.line], settled, is_last=False)
        chunks = chunk_utterances(self.turns, after_line=self.settled)
        yield self._take(chunks, find_settled(self.turns, after_line=self.settled), is_last=True)

    def _add(self, raw: RawLine) -> None:
        line = parse_line(raw)
        before, self.chain, self.end = self.chain, _link(self.chain, raw.raw), raw.end
        match line.content:
            case Damage() as damage if raw.start >= self.known_end:
                self.problems.append(str(damage))
            case Entry(body=SessionStart(key=key)) if raw.number == 1:
                self.key = str(_parse_key(key) or "")
        self.begins = self.begins or begins_anew(line)
        turn = find_turn(line, begins=self.begins)
        if turn is not None:
            self.begins = False
            self.turns.append(turn)
            self.places[turn.line] = (Position(raw.start, raw.number - 1), before)

    def _take(self, chunks: Sequence[UtteranceChunk], settled: Settled | None, *, is_last: bool) -> TranscriptChunks:
        after_line = self.settled
        if settled is not None:
            self.again, self.again_chain = self.places[settled.resume_line]
            self.settled = settled.line
            self.turns = [turn for turn in self.turns if turn.line >= settled.resume_line]
            self.places = {turn.line: self.places[turn.line] for turn in self.turns}
        problems, self.problems = self.problems, []
        self.warning = self.warning or next(iter(problems), None)
        row = self._row_so_far()
        write = FileWrite(
            row if is_last else replace(row, size=self.end),
            tuple(self._stored(chunk) for chunk in chunks),
            after_line=after_line,
        )
        return TranscriptChunks(
            PreparedFile(write, {sha256(one.embed_text): one.embed_text for one in chunks}), tuple(problems)
        )

    def _row_so_far(self) -> FileRow:
        mark = TranscriptCheckpoint(
            inode=self.state.st_ino,
            end=self.end,
            seam=self.transcript.seam(self.end),
            settled=self.settled,
            again=self.again,
            chain=self.again_chain,
            key=self.key,
        )
        return _row(self.file, self.state, self.checked_ns, self.chain, mark, self.warning)

    def _stored(self, chunk: UtteranceChunk) -> NewChunk:
        digest, model = sha256_hex(chunk.text), self.recipe.model or "none"
        key = _parse_key(self.key)
        heading = _heading(key) if key else ""
        context = f"{heading} {date_in_words(chunk.day)} {chunk.context}"
        return NewChunk(
            id=chunk_id(self.file, chunk.line, chunk.line, digest, model),
            start_line=chunk.line,
            end_line=chunk.line,
            hash=digest,
            embed_hash=sha256(chunk.embed_text),
            model=model,
            heading=heading,
            text=chunk.text,
            words=segment(chunk.embed_text),
            context_words=segment_context(context, chunk.embed_text),
            timestamp_ms=chunk.timestamp_ms,
            session_key=self.key or None,
            channel=_clean(key.channel) if key else None,
        )


def _row(
    file: SourceFile,
    state: os.stat_result,
    checked_ns: int,
    digest: str,
    mark: TranscriptCheckpoint,
    warning: str | None,
) -> FileRow:
    return FileRow(
        source=file.source,
        path=file.path,
        hash=digest,
        size=state.st_size,
        mtime_ns=int64(state.st_mtime_ns),
        ctime_ns=int64(state.st_ctime_ns),
        checked_ns=checked_ns,
        warning=warning,
        mark=write_mark(mark),
    )


@lru_cache(maxsize=8)
def _heading(key: SessionKey) -> str:
    """Whose conversation it is. A user's id is whatever a client sends, even a key."""
    return redact(_clean(f"{key.channel}:{key.user_id}"))


def _parse_key(text: str) -> SessionKey | None:
    try:
        return parse_key(text, agent_id="main") if text else None
    except SessionKeyInvalid:
        return None


# what a line says


def begins_anew(line: TranscriptLine) -> bool:
    return isinstance(line.content, Entry) and isinstance(line.content.body, ResetEntry | SessionStart)


def find_turn(line: TranscriptLine, *, begins: bool = False) -> Utterance | None:
    """None for lines that say nothing: settings, thoughts, what cannot be read."""
    if not isinstance(line.content, Entry):
        return None
    body = line.content.body
    kind: Kind
    match body:
        case Message(role=role):
            kind = role
            text = "\n".join(filter(None, (_said(block, short=role == "tool") for block in body.content)))
            speaker = _one_line(redact(body.speaker), 80) or _SPEAKERS[role]
        case CompactionEntry(summary=summary):
            kind, text, speaker = "summary", redact(summary), _SPEAKERS["summary"]
        case _:
            return None
    text = _clean(text).strip()
    if not text:
        return None
    when = line.content.timestamp
    return Utterance(
        line=line.number,
        kind=kind,
        speaker=_clean(speaker),
        day=when.date(),
        when=f"{when:%Y-%m-%d %H:%M}",
        timestamp_ms=min(_LATEST_MS, max(0, int(when.timestamp() * 1000 + 0.5))),
        text=text,
        starts_conversation=begins,
    )


def _said(block: Block, *, short: bool) -> str:
    match block:
        case Text(text):
            return _shortened(text) if short else redact(text)
        case ToolCall(name=name, arguments=arguments):
            return f"→ {_shortened(name)} {_shortened(_told(arguments))}".rstrip()
        case ToolResult(text=text, name=name, is_error=is_error):
            whose = f"{_shortened(name)}: " if name else ""
            return f"← {whose}{'failed: ' if is_error else ''}{_shortened(text)}".rstrip()
        case Attachment(media_type, name):
            return f"[{_shortened(name or media_type)}]"
        case _:
            return ""


def _told(arguments: dict[str, Any]) -> str:
    parts = []
    for name, value in arguments.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        parts.append(f"{name}: {shown}")
    return ", ".join(parts)


def _shortened(text: str) -> str:
    for limit in _LOOKED_AT:
        line = " ".join(redact(text, limit=limit).split())
        if len(line) > _SHORT or len(text) <= limit:
            break
    return _one_line(line, _SHORT)


def _one_line(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _clean(text: str) -> str:
    """What can be stored: a transcript may hold half surrogate pairs, which have no UTF-8."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\0", "�").encode("utf-8", "replace").decode()


# reading it back


def read_conversation(folder: str, path: str, *, start: int = 1, lines: int | None = None) -> Passage:
    """Lines of a transcript, as they are indexed: who said what and when, without secrets."""
    transcript = Transcript(_locate(folder, path))
    first, wanted = max(1, start), _DEFAULT_LINES if lines is None else max(1, lines)
    taken: list[str] = []
    last, chars, more = first - 1, 0, False
    for line in _from_line(transcript, first):
        shown = _shown(line)
        if line.number >= first + wanted or (taken and chars + len(shown) > _MAX_PASSAGE_CHARS):
            more = True
            break
        last, chars = line.number, chars + len(shown) + 1
        if shown:
            taken.append(shown)
    return Passage(
        path=path,
        start=first,
        lines=last - first + 1,
        text="\n".join(taken),
        truncated=more,
        next_from=last + 1 if more else None,
    )


def is_still_said(folder: str, path: str, start: int, end: int, text: str) -> bool:
    """Whether these lines of a transcript still say that, as it was indexed."""
    lines = _from_line(Transcript(_locate(folder, path)), start)
    turns = (find_turn(line) for line in takewhile(lambda line: line.number <= end, lines))
    return text in show_utterances([turn for turn in turns if turn is not None])


def _from_line(transcript: Transcript, first: int) -> Iterator[TranscriptLine]:
    return (parse_line(raw) for raw in transcript.iter_raw() if raw.number >= first)


def _shown(line: TranscriptLine) -> str:
    turn = find_turn(line)
    if turn is not None:
        return turn.shown
    match line.content:
        case Damage(reason=reason):
            return f"(line {line.number} cannot be read: {reason})"
        case Entry(body=SessionStart(), timestamp=when):
            return f"[{when:%Y-%m-%d %H:%M}] (the session begins)"
        case Entry(body=ResetEntry(), timestamp=when):
            return f"[{when:%Y-%m-%d %H:%M}] (the session ends)"
        case _:
            return ""


def _locate(folder: str, path: str) -> str:
    """The transcript that a citation names, or a refusal: only those of the agent, and no way out of their folder."""
    name = path.removeprefix(CITED_FOLDER)
    if "/" in name or "\\" in name or "\0" in name or len(name) > 255 or not is_transcript(name):
        raise PathRefused(f"{path}: not a transcript.", hint="Name one as a search cites it: sessions/….jsonl.")
    if not is_storable(name):
        raise SessionNotFound(f"{path}: there is no such transcript.")
    absolute = os.path.join(folder, name)
    if not stat.S_ISREG(_state_of(absolute).st_mode):
        raise PathRefused(f"{path}: symbolic links are not followed.", hint="Name a transcript that is a file.")
    return absolute

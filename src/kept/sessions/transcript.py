"""One transcript: a log of lines that is only ever appended to, except that a line may lose its text (`forgetting`).

Lines that were read once need not be read again. A reader stores up to where it has read. The next reader checks that
the transcript has only grown since and continues there; if it was changed in any other way, it is read from the
beginning. The catalogue keeps a `ReadEnd` per transcript, the index a `TranscriptCheckpoint`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, TypeGuard

from kept.base.json_values import from_tree, to_tree
from kept.base.limits import is_utf8
from kept.base.values import frozen
from kept.config import Config
from kept.config.agent_config import CLAIM
from kept.errors import PathRefused, SessionNotFound
from kept.sessions.echoes import NO_ECHOES, EchoState
from kept.sessions.entries import AnyEntry, DamagedEntry, is_message, parse_entry
from kept.sessions.title import TitleParts
from kept.sessions.transcript_paths import CITED_FOLDER, cite_transcript, is_transcript
from kept.storage.contract import ABSENT, Change, LogInfo, LogPosition, Storage, Write
from kept.storage.open import open_agent


@frozen
class Position:
    """Place between two lines, by its position in the log and the lines before it."""

    offset: int = 0
    lines: int = 0


@frozen
class Damage:
    """A line that cannot be read."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@dataclass
class TranscriptLine:
    number: int
    """Counted from 1, as in an editor."""
    start: int
    end: int
    raw: bytes
    """Without its line break."""

    @cached_property  # parsed when it is first asked for: many readers need only the bytes of most lines
    def content(self) -> AnyEntry | Damage:
        try:
            return parse_entry(self.raw)
        except DamagedEntry as exc:
            return Damage(self.number, str(exc))


@frozen
class Transcript:
    """The log of one session."""

    storage: Storage
    log: str

    @property
    def citation(self) -> str:
        return cite_transcript(self.log)

    def iter_lines(self, start: Position | None = None) -> Iterator[TranscriptLine]:
        """Yield every line from a position on. Raise SessionNotFound if the transcript is gone."""
        self.find()
        yield from self.iter_known(start or Position())

    def iter_known(self, start: Position) -> Iterator[TranscriptLine]:
        """Yield the lines of a transcript that is known to be there; none if it is gone."""
        lines = self.storage.logs.read(self.log, LogPosition(start.offset))
        for number, line in enumerate(lines, start.lines + 1):
            yield TranscriptLine(number, line.start.offset, line.end.offset, line.data)

    def tail(self, messages: int, end: Position) -> list[TranscriptLine]:
        """Return the last messages, and the other lines between and after them. The log is read backwards.

        ``end`` is any known position, best near the end: line numbers are counted from it.
        """
        lines = self.storage.logs.read_back(self.log, LogPosition(end.offset))
        older = (
            TranscriptLine(number, line.start.offset, line.end.offset, line.data)
            for number, line in zip(range(end.lines, 0, -1), lines, strict=False)
        )
        last_lines: list[TranscriptLine] = []
        for line in chain(reversed([*self.iter_lines(end)]), older):
            if messages <= 0:
                break
            last_lines.append(line)
            messages -= is_message(line.content)
        return last_lines[::-1]

    def find(self) -> LogInfo:
        """Return the log without reading it. Raise SessionNotFound if it is gone."""
        info = self.storage.logs.find(self.log)
        if info is None:
            raise SessionNotFound(f"{self.citation}: there is no such transcript.")
        return info

    def has_only_grown(self, read: ReadEnd, info: LogInfo) -> bool:
        """Return whether all lines before the end of what was read are the same.

        Only the last of them is compared, so that this costs the same for any length. A change further up by another
        program moves nothing if it keeps the length: callers notice it by the log's state, if its size is as it was.
        """
        if read.generation != info.generation or read.offset > info.size:
            return False
        last = next(self.storage.logs.read_back(self.log, LogPosition(read.offset)), None)
        return last is not None and last.end.offset == read.offset and digest_line(last.data) == read.last_line


@frozen
class Transcripts:
    """The transcripts of an agent, or of one of its workspaces: logs whose names begin with a prefix."""

    storage: Storage
    prefix: str

    def list(self) -> Iterator[LogInfo]:
        """Yield the logs of transcripts, without reading them."""
        for info in self.storage.logs.list(self.prefix):
            if is_transcript(info.name[len(self.prefix) :]):
                yield info

    def get(self, citation: str) -> Transcript:
        """Return the cited transcript. Raise PathRefused for anything but a log directly below the prefix.

        A citation may come from a model or a web page, so it must not lead to any other file.
        """
        name = citation.removeprefix(CITED_FOLDER)
        if not is_transcript(name):
            raise PathRefused(f"{citation}: not a transcript.", hint="Name one as a search cites it: sessions/….jsonl.")
        if not is_utf8(name):
            raise SessionNotFound(f"{citation}: there is no such transcript.")
        return Transcript(self.storage, self.prefix + name)


def open_transcripts(config: Config) -> Transcripts:
    return Transcripts(open_agent(config), config.paths.transcripts)


def plan_claim(config: Config, storage: Storage) -> list[Change]:
    """Return the change that claims the conversations for the workspace, in a home that has no workspace of its own."""
    if config.conversations != "claimed" or storage.documents.find(CLAIM) is not None:
        return []
    return [Write(CLAIM, os.fsencode(os.path.realpath(config.workspace)), ABSENT)]


def digest_line(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


# resuming a transcript that has only grown


@frozen
class ReadEnd:
    """Place after the last line that was read, and how to recognise it."""

    generation: int
    offset: int
    last_line: str
    """Digest of the last line before the offset."""


@frozen
class TranscriptCheckpoint:
    """Progress of the index through a transcript.

    The chunks of the last utterances still change, because the next ones will be their context. So three places are
    kept, in this order::

        resume_at      where to read from next time: some utterances earlier, as context for the lines after final_line
        final_line     chunks up to here are final and stay in the index; later ones are replaced
        read.offset    end of the last line that was read
    """

    read: ReadEnd
    final_line: int
    resume_at: Position
    running_hash: str
    """Hash of all lines before ``resume_at`` (`extend_hash`)."""
    key: str
    """Key of the session. Empty if the first line, which has it, is lost."""
    echoes: EchoState = NO_ECHOES
    """What the lines before ``resume_at`` tell about those after it."""
    heading: str = ""
    """Channel and person, or for an imported conversation channel and folder."""
    titles: TitleParts = TitleParts()

    def to_json(self) -> str:
        """Return it as the index stores it. A query reads the title from there."""
        return json.dumps({**to_tree(self), "title": self.titles.text}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> TranscriptCheckpoint | None:
        """Return None for a text that is not a checkpoint: then the transcript is read from the beginning."""
        try:
            return from_tree(cls, json.loads(text))
        except ValueError:
            return None


def extend_hash(running_hash: str, raw: bytes) -> str:
    """Return the hash of all lines up to this one, from the hash of those before it ("" before the first).

    Unlike a plain SHA-256 of the file, its state is a short text, so it can be stored and continued at any line.
    """
    return hashlib.sha256(running_hash.encode() + raw + b"\n").hexdigest()


# receipts of compactions: which lines left the context, and the hash of these lines

LineRanges = Sequence[tuple[int, int]]
"""First and last line of each range."""


def is_receipt(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Check the shape: anyone who appends a compaction can store anything as its receipt."""
    if not isinstance(value, Mapping) or not {"path", "lines", "sha256", "searchable"} <= set(value):
        return False
    ranges = value["lines"]
    return isinstance(ranges, list) and all(
        isinstance(line_range, list) and [type(number) for number in line_range] == [int, int] for line_range in ranges
    )


def ranges_of(receipt: Mapping[str, Any]) -> LineRanges:
    return [(first, last) for first, last in receipt["lines"]]


def hash_lines(lines: Iterable[TranscriptLine], ranges: LineRanges) -> str:
    """Return the SHA-256 of some lines of a transcript, byte for byte."""
    digest = hashlib.sha256()
    for line in lines:
        if any(first <= line.number <= last for first, last in ranges):
            digest.update(line.raw + b"\n")
    return digest.hexdigest()

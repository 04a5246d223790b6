"""Utterances: the lines of a transcript as they are indexed and shown, with speaker, time and text.

Secrets are redacted here, before anything is stored or shown. Texts of tools are shortened: their beginning tells
what happened, and the whole is in the transcript. A cited transcript is read back with everything that its lines say;
what they repeat from memory is not indexed (`echoes`).
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Literal

from kept.base.limits import clip, ms_from_time, one_line, utf8_safe
from kept.base.records import Passage
from kept.base.redact import redact
from kept.base.values import frozen
from kept.sessions.echoes import NO_ECHOES, EchoFilter, EchoState, strip_markup
from kept.sessions.entries import (
    AnyEntry,
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
from kept.sessions.session_key import find_key
from kept.sessions.transcript import Damage, Transcript, TranscriptLine, Transcripts

Kind = Literal["user", "assistant", "tool", "system", "summary"]

_SPEAKERS: dict[Kind, str] = {
    "user": "User",
    "assistant": "Assistant",
    "tool": "Tool",
    "system": "System",
    "summary": "Summary",
}
SHOWN_SPEAKERS = {"user": "You", "assistant": "Agent", "tool": "Tool", "system": "System"}
"""Names of roles in a conversation that is shown to the person in it."""
_SPEAKER_CHARS = 80
LABEL = r"^\[\d{4}-\d\d-\d\d \d\d:\d\d\] ([^:\n]{1,80}): "
"""Pattern of `Utterance.label`."""
_TOOL_CHARS = 200
_TOOL_CHARS_READ = (1_000, 4_000)
"""How much of a tool's text is redacted to get `_TOOL_CHARS` of it. More is read if most of it is white space."""
_DEFAULT_LINES = 200
_MAX_PASSAGE_CHARS = 60_000


@frozen
class Utterance:
    """One line said in a transcript, as it may be shown: redacted, shortened, not empty."""

    line: int
    kind: Kind
    speaker: str
    day: dt.date
    when: str
    timestamp_ms: int
    text: str
    starts_conversation: bool = False
    """True if a conversation starts here. Earlier utterances are not its context."""
    is_recalled: bool = False
    """True if an agent answers from memory here: a note says it too, and may have changed since."""

    @property
    def is_context(self) -> bool:
        """Whether it is only context of its neighbours: the output of a program is not talk."""
        return self.kind == "tool"

    @property
    def label(self) -> str:
        return f"[{self.when}] {self.speaker}: "

    @property
    def with_speaker(self) -> str:
        return f"{self.speaker}: {self.text}"

    @property
    def shown(self) -> str:
        return f"{self.label}{self.text}"


class UtteranceReader:
    """Reads the lines of a transcript in order, and returns what is indexed: what was said, without echoes."""

    def __init__(self, state: EchoState = NO_ECHOES) -> None:
        self._echoes = EchoFilter(state)
        self._starts_conversation = False

    @property
    def state(self) -> EchoState:
        """State after the lines so far that the next lines depend on."""
        return self._echoes.state

    def read(self, line: TranscriptLine) -> Utterance | None:
        """Return what a line says. Return None for settings, thinking, echoes, and lines that cannot be read."""
        body = line.content.body if isinstance(line.content, Entry) else None
        if isinstance(body, ResetEntry | SessionStart):  # the next utterance has nothing to do with those before
            self._starts_conversation = True
        content, is_recalled = self._echoes.read(body) if isinstance(body, Message) else (None, False)
        utterance = find_utterance(
            line.number,
            line.content,
            content,
            starts_conversation=self._starts_conversation,
            is_recalled=is_recalled,
        )
        if utterance is not None:
            self._starts_conversation = False
        return utterance


def find_utterance(
    line: int,
    entry: AnyEntry | Damage,
    content: Sequence[Block] | None = None,
    *,
    starts_conversation: bool = False,
    is_recalled: bool = False,
) -> Utterance | None:
    """Return everything that the entry of a line says. Return None for settings, thinking, and lines that cannot be
    read. ``content`` replaces the content of its message."""
    if not isinstance(entry, Entry):
        return None
    body = entry.body
    kind: Kind
    match body:
        case Message(role=role):
            kind = role
            blocks = body.content if content is None else content
            text = "\n".join(filter(None, (_block_text(block, role) for block in blocks)))
            speaker = clip(one_line(redact(body.speaker)), _SPEAKER_CHARS) or _SPEAKERS[role]
        case CompactionEntry(summary=summary):
            kind, text, speaker = "summary", redact(summary), _SPEAKERS["summary"]
        case _:
            return None
    text = storable_text(text).strip()
    if not text:
        return None
    when = entry.timestamp
    return Utterance(
        line=line,
        kind=kind,
        speaker=storable_text(speaker),
        day=when.date(),
        when=f"{when:%Y-%m-%d %H:%M}",
        timestamp_ms=max(0, ms_from_time(when)),
        text=text,
        starts_conversation=starts_conversation,
        is_recalled=is_recalled,
    )


def call_text(name: str, arguments: str) -> str:
    """Return a tool call as people and models read it."""
    return f"→ {name} {arguments}"


def result_text(text: str, *, is_error: bool, name: str = "") -> str:
    """Return a tool's result as people and models read it."""
    return f"← {f'{name}: ' if name else ''}{'failed: ' if is_error else ''}{text}"


def _block_text(block: Block, role: Kind) -> str:
    match block:
        case Text(text) if role == "tool":
            return _shorten(text)
        case Text(text):
            return strip_markup(redact(text)) if role == "user" else redact(text)
        case ToolCall(name=name, arguments=arguments):
            # Without the quotes and braces of JSON, which no query looks for.
            texts = (
                f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)}"
                for key, value in arguments.items()
            )
            return call_text(_shorten(name), _shorten(", ".join(texts))).rstrip()
        case ToolResult(text=text, name=name, is_error=is_error):
            return result_text(_shorten(text), is_error=is_error, name=_shorten(name or "")).rstrip()
        case Attachment(media_type, name):
            return f"[{_shorten(name or media_type)}]"
        case _:
            return ""


def _shorten(text: str) -> str:
    """Return a redacted beginning of a text as one line.

    Redaction comes first and sees more than is kept, because a cut through a secret would hide it from the rules.
    """
    for limit in _TOOL_CHARS_READ:
        line = one_line(redact(text, limit=limit))
        if len(line) > _TOOL_CHARS or len(text) <= limit:
            break
    return clip(line, _TOOL_CHARS)


def storable_text(text: str) -> str:
    """Return a text that SQLite can store: a transcript may hold half surrogate pairs, which have no UTF-8."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return utf8_safe(text.replace("\0", "�"))


# reading a citation back


def read_transcript(transcripts: Transcripts, citation: str, *, start: int = 1, lines: int | None = None) -> Passage:
    """Return lines of a transcript, fewer if they are long. Lines that say nothing count and are not shown."""
    first, limit = max(1, start), _DEFAULT_LINES if lines is None else max(1, lines)
    texts: list[str] = []
    last, chars, is_truncated = first - 1, 0, False
    for line in _iter_from(transcripts.get(citation), first):
        text = line_text(line)
        if line.number >= first + limit or (texts and chars + len(text) > _MAX_PASSAGE_CHARS):
            is_truncated = True
            break
        last, chars = line.number, chars + len(text) + 1
        if text:
            texts.append(text)
    return Passage(
        path=citation,
        start=first,
        lines=last - first + 1,
        text="\n".join(texts),
        truncated=is_truncated,
        next_from=last + 1 if is_truncated else None,
    )


def read_key(transcripts: Transcripts, citation: str) -> str | None:
    """Return the key of the conversation that a cited transcript is from, or None if its first line is lost."""
    first = next(transcripts.get(citation).iter_lines(), None)
    body = getattr(first and first.content, "body", None)
    key = find_key(body.key) if isinstance(body, SessionStart) else None
    return str(key) if key else None


def still_says(transcripts: Transcripts, citation: str, *, start: int, end: int, text: str) -> bool:
    """Return whether these lines of a transcript still contain a text as it was indexed: line by line, because echoes
    are left out, and without its labels, because every piece of a long message has one."""
    lines = takewhile(lambda line: line.number <= end, _iter_from(transcripts.get(citation), start))
    utterances = (find_utterance(line.number, line.content) for line in lines)
    whole = "\n".join(utterance.shown for utterance in utterances if utterance is not None)
    return all(re.sub(LABEL, "", line).strip("… ") in whole for line in text.split("\n"))


def _iter_from(transcript: Transcript, first_line: int) -> Iterator[TranscriptLine]:
    return (line for line in transcript.iter_lines() if line.number >= first_line)


def line_text(line: TranscriptLine) -> str:
    """Return a line of a transcript as it is read back, or nothing."""
    utterance = find_utterance(line.number, line.content)
    if utterance is not None:
        return utterance.shown
    match line.content:
        case Damage(reason=reason):
            return f"(line {line.number} cannot be read: {reason})"
        case Entry(body=SessionStart(), timestamp=when):
            return f"[{when:%Y-%m-%d %H:%M}] (the session begins)"
        case Entry(body=ResetEntry(), timestamp=when):
            return f"[{when:%Y-%m-%d %H:%M}] (the session ends)"
        case _:
            return ""

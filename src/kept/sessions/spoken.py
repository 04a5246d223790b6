"""Utterances: the lines of a transcript as they are indexed and shown, with speaker, time and text.

Secrets are redacted here, before anything is stored or shown. Texts of tools are shortened: their beginning tells
what happened, and the whole is in the transcript.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any, Literal

from kept.limits import clip, one_line, utf8_safe
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
from kept.sessions.transcript import TranscriptLine
from kept.values import frozen

Kind = Literal["user", "assistant", "tool", "system", "summary"]

_SPEAKERS: dict[Kind, str] = {
    "user": "User",
    "assistant": "Assistant",
    "tool": "Tool",
    "system": "System",
    "summary": "Summary",
}
_SPEAKER_CHARS = 80
_TOOL_CHARS = 200
_TOOL_CHARS_READ = (1_000, 4_000)
"""How much of a tool's text is redacted to get `_TOOL_CHARS` of it. More is read if most of it is white space."""
_LATEST_MS = 253_370_000_000_000
"""Close to the end of the year 9999, the last that can be shown as a date."""


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
    """Whether a conversation starts here. Earlier utterances are not its context."""

    @property
    def with_speaker(self) -> str:
        return f"{self.speaker}: {self.text}"

    @property
    def shown(self) -> str:
        return f"[{self.when}] {self.with_speaker}"


def show_utterances(utterances: Sequence[Utterance]) -> str:
    return "\n".join(utterance.shown for utterance in utterances)


def starts_conversation(line: TranscriptLine) -> bool:
    """Return whether the next utterance has nothing to do with the previous ones."""
    return isinstance(line.content, Entry) and isinstance(line.content.body, ResetEntry | SessionStart)


def find_utterance(line: TranscriptLine, *, starts_conversation: bool = False) -> Utterance | None:
    """Return what a line says. Return None for settings, thinking, and lines that cannot be read."""
    if not isinstance(line.content, Entry):
        return None
    body = line.content.body
    kind: Kind
    match body:
        case Message(role=role):
            kind = role
            text = "\n".join(filter(None, (_block_text(block, short=role == "tool") for block in body.content)))
            speaker = clip(one_line(redact(body.speaker)), _SPEAKER_CHARS) or _SPEAKERS[role]
        case CompactionEntry(summary=summary):
            kind, text, speaker = "summary", redact(summary), _SPEAKERS["summary"]
        case _:
            return None
    text = storable_text(text).strip()
    if not text:
        return None
    when = line.content.timestamp
    return Utterance(
        line=line.number,
        kind=kind,
        speaker=storable_text(speaker),
        day=when.date(),
        when=f"{when:%Y-%m-%d %H:%M}",
        timestamp_ms=min(_LATEST_MS, max(0, int(when.timestamp() * 1000 + 0.5))),
        text=text,
        starts_conversation=starts_conversation,
    )


def call_text(name: str, arguments: str) -> str:
    """Return a tool call as people and models read it."""
    return f"→ {name} {arguments}"


def result_text(text: str, *, is_error: bool, name: str = "") -> str:
    """Return a tool's result as people and models read it."""
    return f"← {f'{name}: ' if name else ''}{'failed: ' if is_error else ''}{text}"


def _block_text(block: Block, *, short: bool) -> str:
    match block:
        case Text(text):
            return _shorten(text) if short else redact(text)
        case ToolCall(name=name, arguments=arguments):
            return call_text(_shorten(name), _shorten(_arguments_text(arguments))).rstrip()
        case ToolResult(text=text, name=name, is_error=is_error):
            return result_text(_shorten(text), is_error=is_error, name=_shorten(name or "")).rstrip()
        case Attachment(media_type, name):
            return f"[{_shorten(name or media_type)}]"
        case _:
            return ""


def _arguments_text(arguments: dict[str, Any]) -> str:
    """Return arguments without the quotes and braces of JSON, which no query looks for."""
    parts = []
    for name, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        parts.append(f"{name}: {text}")
    return ", ".join(parts)


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

"""A conversation as text for people.

Tools are folded: a call is one line, and its result is left out unless it failed. What clients put into messages
(reminders, commands and their output), thinking and empty messages are left out too; JSON has them all.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence

from kept.base.limits import clip, one_line
from kept.base.wording import plural
from kept.cli.output import local_time, style
from kept.sessions.echoes import is_hidden, iter_blocks
from kept.sessions.entries import (
    Attachment,
    Block,
    CompactionEntry,
    Entry,
    Message,
    ResetEntry,
    SessionStart,
    StateEntry,
    Text,
    ToolCall,
    ToolResult,
    UnknownEntry,
)
from kept.sessions.record import SessionRecord
from kept.sessions.spoken import SHOWN_SPEAKERS, call_text, result_text
from kept.sessions.transcript import Damage, TranscriptLine

_SHORT = 100
_COLOURS = {"user": "cyan", "assistant": "green", "tool": "yellow", "system": "magenta"}


def describe_session(record: SessionRecord) -> str:
    name = f"{record.channel}:{record.folder}" if record.folder else record.key or "whose first line is lost"
    return f"Session {record.id}, {name}, {plural(record.messages, 'message')}"


def is_talk(line: TranscriptLine) -> bool:
    """Return whether a line is a message of a person or the agent with words in it."""
    content = line.content
    if not isinstance(content, Entry) or not isinstance(content.body, Message):
        return False
    message = content.body
    return message.role in ("user", "assistant") and any(
        isinstance(block, Text | Attachment) for block in _talk_blocks(message)
    )


def show_line(line: TranscriptLine) -> Iterator[str]:
    """Yield what to print of a line of a transcript."""
    match line.content:
        case Entry(body=Message() as message, timestamp=when):
            yield from _show_message(message, when)
        case Entry(timestamp=when, body=body):
            if text := _event(body):
                yield style(f"\n{local_time(when)} ── {text}", dim=True)
        case UnknownEntry(type=kind):
            if "/" not in kind:  # with a slash, it is a record of another program
                yield style(f"\n(line {line.number} is of a kind this version does not know: {kind})", dim=True)
        case Damage(reason=reason):
            yield style(f"\n(line {line.number} cannot be read: {reason})", fg="red")


def _show_message(message: Message, when: dt.datetime) -> Iterator[str]:
    blocks = _talk_blocks(message)
    if not all(isinstance(block, ToolCall | ToolResult) for block in blocks):
        speaker = one_line(message.sender or "") or SHOWN_SPEAKERS[message.role]
        yield f"\n{style(local_time(when), dim=True)} {style(speaker, fg=_COLOURS[message.role], bold=True)}"
    for block in blocks:
        match block:
            case Text(text):
                yield text.strip("\n")
            case ToolCall(name=name, arguments=arguments):
                yield style(f"  {call_text(name, _shorten(json.dumps(arguments, ensure_ascii=False)))}", dim=True)
            case ToolResult(text=text):
                yield style(f"  {result_text(_shorten(text), is_error=True)}", dim=True)
            case Attachment(media_type, name):
                yield f"[{name or media_type}]"


def _talk_blocks(message: Message) -> Sequence[Block]:
    """Return the blocks of a message that are worth reading."""
    return [] if is_hidden(message) else [block for block in iter_blocks(message) if _is_talk_block(block, message)]


def _is_talk_block(block: Block, message: Message) -> bool:
    match block:
        case Text() | ToolCall() | ToolResult(is_error=True):
            return True
        case Attachment():
            return message.role != "tool"
        case _:
            return False


def _event(body: object) -> str:
    match body:
        case SessionStart(predecessor=before):
            return f"session begins, after {before}" if before else "session begins"
        case CompactionEntry(summary=summary, source=source):
            return f"compacted ({source}): {summary}"
        case ResetEntry(reason=reason, successor=after):
            return f"session ends ({reason})" + (f", goes on in {after}" if after else "")
        case StateEntry(name=name, value=value):
            return f"{name}: {_shorten(json.dumps(value, ensure_ascii=False))}"
        case _:
            return ""


def _shorten(text: str) -> str:
    return clip(one_line(text), _SHORT)

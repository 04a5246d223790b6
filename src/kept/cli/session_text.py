"""A conversation as text for people.

Tools are folded: a call is one line, and its result is left out unless it failed. What clients put into messages
(reminders, commands and their output), thinking and empty messages are left out too. ``everything`` shows them all.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kept.base.limits import clip, one_line
from kept.base.wording import plural
from kept.cli.output import local_time, style
from kept.sessions.echoes import is_hidden, iter_blocks
from kept.sessions.entries import (
    AnyEntry,
    Attachment,
    Block,
    CompactionEntry,
    Entry,
    Message,
    ResetEntry,
    SessionStart,
    StateEntry,
    Text,
    Thinking,
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


def show_lines(lines: Iterable[TranscriptLine], *, everything: bool, with_context: bool = False) -> Iterator[str]:
    """Yield the lines to print. ``everything`` shows each entry, with thinking and the tool results.
    ``with_context`` shows below each answer what the model was sent."""
    for line in lines:
        yield from _show_content(line.content, line.number, everything=everything)
        if with_context and isinstance(line.content, Entry) and isinstance(line.content.body, Message):
            yield from (style(f"  {text}", dim=True) for text in context_lines(line.content.body))


def _show_content(content: AnyEntry | Damage, number: int, *, everything: bool) -> Iterator[str]:
    match content:
        case Entry(body=Message() as message, timestamp=when):
            yield from _show_message(message, when, everything=everything)
        case Entry(timestamp=when, body=body):
            text = _event(body)
            if text:
                yield style(f"\n{local_time(when)} ── {text}", dim=True)
        case UnknownEntry(type=kind):
            if everything or "/" not in kind:  # with a slash, it is a record of another program
                yield style(f"\n(line {number} is of a kind this version does not know: {kind})", dim=True)
        case Damage(reason=reason):
            yield style(f"\n(line {number} cannot be read: {reason})", fg="red")


def _show_message(message: Message, when: dt.datetime, *, everything: bool) -> Iterator[str]:
    blocks = message.content if everything else _talk_blocks(message)
    is_tool_only = all(isinstance(block, ToolCall | ToolResult) for block in blocks)
    if blocks and (everything or not is_tool_only):
        speaker = style(_speaker(message), fg=_COLOURS[message.role], bold=True)
        yield f"\n{style(local_time(when), dim=True)} {speaker}"
    for block in blocks:
        is_tool = isinstance(block, ToolCall | ToolResult)
        yield style(f"  {_show_block(block)}", dim=True) if is_tool and not everything else _show_block(block)


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


def _show_block(block: Block) -> str:
    match block:
        case Text(text):
            return text.strip("\n")
        case Thinking(text):
            return f"(thinking) {_shorten(text)}"
        case ToolCall(name=name, arguments=arguments):
            return call_text(name, _shorten(json.dumps(arguments, ensure_ascii=False)))
        case ToolResult(text=text, is_error=is_error):
            return result_text(_shorten(text), is_error=is_error)
        case Attachment(media_type, name):
            return f"[{name or media_type}]"
        case _:
            return f"[{block.fields.get('type', 'unknown')}]"


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


def context_lines(message: Message) -> Iterator[str]:
    """Yield what an answer records about its context: the size of each part, and the memories that were recalled."""
    from kept.agent.context import PARTS, read_context

    context = read_context(message)
    if context is None:
        return
    tokens = context.get("tokens", {})
    if "total" in tokens:
        sizes = {**tokens, **tokens["files"]}
        names = (name for part in PARTS for name in (tokens["files"] if part == "files" else [part]))
        parts = ", ".join(f"{name} {sizes[name]:,}" for name in names if sizes.get(name))
        requests = context.get("requests")
        count = f" in the last of {requests} requests" if isinstance(requests, int) and requests > 1 else ""
        yield f"Context: {tokens['total']:,} tokens{count} ({parts})"
    for passage in context["recalled"]:
        yield f"Recalled: {_describe_recalled(passage)}"


def _describe_recalled(passage: Mapping[str, Any]) -> str:
    score, tokens, grade = passage.get("score"), passage.get("tokens"), passage.get("grade")
    remarks = [
        grade if isinstance(grade, str) else "",
        f"score {score:.2f}" if isinstance(score, int | float) else "for the message before",
        f"{tokens:,} tokens" if isinstance(tokens, int) else "",
        "not sent: no room" if passage.get("sent") is False else "",
    ]
    return f"{one_line(passage['citation'])} ({', '.join(filter(None, remarks))})"


def _shorten(text: str) -> str:
    return clip(one_line(text), _SHORT)


def _speaker(message: Message) -> str:
    return one_line(message.sender or "") or SHOWN_SPEAKERS[message.role]

"""The part of a conversation that a model sees: the messages since the last compaction, as turns of a request. Pure.

Whatever a transcript contains, every provider accepts the turns: the user comes first, roles alternate, and each tool
call is followed by its result.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from kept.agent.fence import Fence, clean_line
from kept.base.limits import shorten
from kept.base.values import frozen
from kept.models.base import FilePart, Part, TextPart, Thought, ToolOutput, ToolUse, Turn
from kept.sessions.entries import (
    FLUSH,
    QUOTED,
    SENT,
    Attachment,
    CompactionEntry,
    DamagedEntry,
    Entry,
    Message,
    StateEntry,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    parse_time,
)
from kept.sessions.record import active_branch
from kept.sessions.transcript import Damage, Position, TranscriptLine

INBOUND = "inbound"
"""Metadata of a message: its id in the channel."""
ANSWERS = "answers"
"""Metadata of an answer: channel ids of the messages that it answers."""
GROUP = "group"
"""Metadata of a message: messages of its group before it."""
APPROVAL, ASKED = "approval", "asked"
"""Name of the states about tool calls that need permission, and the decision before there is one."""


@frozen
class LoggedMessage:
    """Message of a transcript, with its line number."""

    line: int
    entry: Entry
    message: Message
    inbound_id: str | None = None
    """Id of the message in its channel."""
    answered_ids: tuple[str, ...] = ()
    """Channel ids of the messages that this one answers."""


@frozen
class ConversationView:
    """State of a conversation, as a transcript records it."""

    messages: tuple[LoggedMessage, ...]
    """Messages that the model sees verbatim, oldest first."""
    compaction: Entry | None
    """Last compaction. Its summary replaces everything before."""
    flush: str | None
    """Outcome of the last attempt at a flush since the last compaction."""
    flushed_line: int
    """Last line that a successful flush has read."""
    answers: tuple[LoggedMessage, ...]
    """Complete answers of the whole session that name the messages they answer."""
    inbound: tuple[LoggedMessage, ...]
    """Messages of the whole session that have a channel id."""
    summary: str = ""
    """Summary of the last compaction. Empty if there is none."""
    end: Position = Position()
    """Position up to which the transcript was read for this."""
    undecided: frozenset[str] = frozenset()
    """Ids of tool calls that a person was asked about and that were not decided."""


def build_view(lines: Sequence[TranscriptLine]) -> ConversationView:
    """Return the state of a conversation. If the transcript has branches, follow the one with the last entry."""
    numbers = {id(line.content): line.number for line in lines}
    branch = active_branch([line.content for line in lines if not isinstance(line.content, Damage)])
    messages: list[LoggedMessage] = []
    undecided: set[str] = set()
    compaction, flush, summary = None, None, ""
    kept_from = flushed_line = 0
    for at, entry in enumerate(branch):
        match entry:
            case Entry(body=Message() as message):
                # An imported transcript may store anything under these names.
                inbound, answers = message.metadata.get(INBOUND), message.metadata.get(ANSWERS)
                inbound_id = inbound if message.role == "user" and isinstance(inbound, str) else None
                items = answers if message.role == "assistant" and isinstance(answers, list) else ()
                answered = tuple(item for item in items if isinstance(item, str))
                messages.append(LoggedMessage(numbers[id(entry)], entry, message, inbound_id, answered))
            case Entry(body=CompactionEntry(summary=summary, first_kept_id=kept_id)):
                compaction, flush = entry, None
                first_kept = (other for other in branch[:at] if kept_id is not None and other.id == kept_id)
                kept_from = numbers[id(next(first_kept, entry))]
            case Entry(body=StateEntry(name, value)) if name == FLUSH:
                flush = str(value.get("outcome")) if isinstance(value, dict) else ""
                through = value.get("throughLine") if isinstance(value, dict) and flush != "failed" else None
                flushed_line = max(flushed_line, through) if isinstance(through, int) else flushed_line
            case Entry(body=StateEntry(name, dict() as value)) if name == APPROVAL:
                (undecided.add if value.get("decision") == ASKED else undecided.discard)(str(value.get("call")))
    return ConversationView(
        messages=tuple(logged for logged in messages if logged.line >= kept_from),
        compaction=compaction,
        flush=flush,
        flushed_line=flushed_line,
        answers=tuple(logged for logged in messages if logged.answered_ids),
        inbound=tuple(logged for logged in messages if logged.inbound_id is not None),
        undecided=frozenset(undecided),
        summary=summary,
        end=Position(lines[-1].end, lines[-1].number) if lines else Position(),
    )


# as turns

NO_RESULT = "Interrupted: it is not known whether this was carried out."
_GROUP_HEADING = "[Chat messages since your last reply - for context]"
_CURRENT_HEADING = "[Current message - respond to this]"
NAME_CHARS = 80
"""Characters of a name that are shown."""

_Results = dict[str, list[tuple[int, ToolResult, LoggedMessage]]]
"""Tool results by call, each with the index of its message."""


@frozen
class TurnOptions:
    """Rendering of messages."""

    fence: Fence
    path: str
    """Path by which the transcript is cited."""
    message_tokens: int
    """Limit of a single text. A longer one is shown in part."""
    zone: dt.tzinfo | None = None
    """Time zone of the times before messages. None to leave them out."""
    thinker: str = ""
    """Model whose signed thoughts are sent back to it; no other model can read them."""
    thoughts_from: int = 0
    """Line from which on thoughts are sent: those of the answer that is being written."""
    files: Mapping[str, tuple[FilePart, ...]] = field(default_factory=dict)
    """Files to hand over with a message, by the id of its entry."""


def make_turns(messages: Sequence[LoggedMessage], options: TurnOptions, leads: Mapping[str, str]) -> list[list[Turn]]:
    """Return the turns of each message of a conversation, for `merge_turns`.

    ``leads`` has text to put before a message, by the id of its entry.
    """
    results: _Results = {}
    for index, logged in enumerate(messages):
        for block in logged.message.content:
            if isinstance(block, ToolResult):
                results.setdefault(block.call_id, []).append((index, block, logged))
    turns: list[list[Turn]] = []
    for index, logged in enumerate(messages):
        match logged.message.role:
            case "assistant":
                turns.append(_answer_turns(logged, index, results, options))
            case "user":
                parts = iter_user_parts(logged, options, leads.get(logged.entry.id, ""))
                turns.append([Turn("user", tuple(parts))])
            case "system":
                text = _message_text(logged, options)
                turns.append([Turn.of("user", options.fence.block("remark", text))] if text.strip() else [])
            case "tool":
                turns.append([])  # rendered with its call; a result without a call is dropped
    return turns


def merge_turns(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """Merge consecutive turns of one role, and make sure that the user comes first."""
    merged: list[Turn] = []
    for turn in turns:
        if not turn.parts:
            continue
        if merged and merged[-1].role == turn.role:
            merged[-1] = Turn(turn.role, (*merged[-1].parts, *turn.parts))
        else:
            merged.append(turn)
    if merged and merged[0].role == "assistant":
        merged.insert(0, Turn.of("user", "(The conversation began before this.)"))
    return tuple(merged)


def _answer_turns(logged: LoggedMessage, index: int, results: _Results, options: TurnOptions) -> list[Turn]:
    """Return an answer with its tool calls, and their results."""
    message, text = logged.message, _message_text(logged, options)
    calls = [block for block in message.content if isinstance(block, ToolCall)]
    parts: list[Part] = []
    if calls and options.thinker == message.model and logged.line >= options.thoughts_from:
        signed = (block for block in message.content if isinstance(block, Thinking) and block.signature)
        parts += (Thought(block.text, block.signature or "") for block in signed)
    parts += [TextPart(text)] if text.strip() else []
    outputs: list[Part] = []
    for number, call in enumerate(calls):
        # New ids: two calls of a turn may not share one, and providers refuse some ids of others.
        call_id = f"call_{logged.line}_{number}"
        parts.append(ToolUse(call_id, call.name, call.arguments))
        # Ids are not unique in every transcript: take the first result from here on, and each result once.
        queue = results.get(call.id, [])
        at = next((at for at, (result_index, _, _) in enumerate(queue) if result_index >= index), None)
        if at is None:
            outputs.append(ToolOutput(call_id, NO_RESULT, is_error=True))
            continue
        _, result, result_logged = queue.pop(at)
        place = f"{options.path}#L{result_logged.line}"
        text = shorten(result.text, options.message_tokens, f"the full text is in {place}")
        block = options.fence.block("result", text, tool=result.name)
        outputs.append(ToolOutput(call_id, block, is_error=result.is_error))
    return [Turn("assistant", tuple(parts)), Turn("user", tuple(outputs))]


def iter_user_parts(logged: LoggedMessage, options: TurnOptions, lead: str) -> Iterator[Part]:
    message, fence = logged.message, options.fence
    group = group_block(message.metadata[GROUP], fence) if GROUP in message.metadata else ""
    quoted, quote = "", message.metadata.get(QUOTED)
    if isinstance(quote, dict) and str(quote.get("text", "")).strip():
        quoted = fence.block("quoted", str(quote["text"]), **{"from": str(quote.get("from") or "somebody")})
    text = _message_text(logged, options)
    time = _time_line(logged, options.zone) if text.strip() else ""
    before = (lead, group, _CURRENT_HEADING if lead or group else "", quoted, time)
    yield from (TextPart(part) for part in before if part)
    yield from options.files.get(logged.entry.id, ())
    if not text.strip():
        return
    sender, origin = clean_line(message.sender or "", NAME_CHARS), message.forwarded_from
    if origin is not None:  # data, because another person wrote it
        block = fence.block("forwarded", text, **{"from": origin})
        yield TextPart(f"{sender or 'The person'} forwarded a message that somebody else wrote:\n{block}")
    else:
        yield TextPart(f"{sender}: {text}" if sender else text)


def _time_line(logged: LoggedMessage, zone: dt.tzinfo | None) -> str:
    """Return when a message was sent, as its channel tells it."""
    if zone is None:
        return ""
    sent = logged.message.metadata.get(SENT)
    try:
        local = (parse_time(sent) if sent else logged.entry.timestamp).astimezone(zone)
        return f"[{local:%A} {local:%Y-%m-%d %H:%M}]"
    except (DamagedEntry, OverflowError, ValueError):  # a transcript from elsewhere may have any time
        return ""


def _message_text(logged: LoggedMessage, options: TurnOptions) -> str:
    texts = []
    for block in logged.message.content:
        if isinstance(block, Text):
            texts.append(block.text)
        elif isinstance(block, Attachment) and block.sha256 is None:  # a stored one is named in the text
            texts.append(f"[attached: {clean_line(block.name or block.media_type, NAME_CHARS)}]")
    note = f"the full text is in {options.path}#L{logged.line}"
    return shorten("\n\n".join(texts), options.message_tokens, note)


def group_block(lines: Any, fence: Fence) -> str:
    """Return messages of a group as data under a heading: they are from others and not addressed to the agent."""
    if not isinstance(lines, list) or not lines:
        return ""
    texts = []
    for line in lines:
        if isinstance(line, dict):
            sender = clean_line(str(line.get("sender", "")), NAME_CHARS)
            time = str(line.get("timestamp", ""))[11:16]
            # Indent further lines, so that one message cannot look like several.
            text = "\n  ".join(str(line.get("text", "")).splitlines())
            texts.append(f"[{time}] {sender}: {text}")
    return f"{_GROUP_HEADING}\n{fence.block('overheard', chr(10).join(texts))}"

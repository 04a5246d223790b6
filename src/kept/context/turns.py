"""Convert messages of a transcript to the turns that a model gets. Pure.

Whatever a transcript contains, every provider accepts the turns: the user comes first, roles alternate, and each tool
call is followed by its result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kept.context.fence import Fence, clean_line
from kept.context.trim import shorten
from kept.context.view import LoggedMessage
from kept.llm.base import Part, TextPart, ToolOutput, ToolUse, Turn
from kept.sessions.entries import QUOTED, Attachment, Message, Text, ToolCall, ToolResult
from kept.values import frozen

GROUP = "group"
"""Metadata of a message: messages of its group before it."""
NO_RESULT = "Interrupted: it is not known whether this was carried out."
_GROUP_HEADING = "[Chat messages since your last reply - for context]"
_CURRENT_HEADING = "[Current message - respond to this]"
_NAME_CHARS = 80


@frozen
class TurnOptions:
    """Rendering of messages."""

    fence: Fence
    path: str
    """Path by which the transcript is cited."""
    message_tokens: int
    """Limit of a single text. A longer one is shown in part."""


def make_turns(messages: Sequence[LoggedMessage], options: TurnOptions, leads: Mapping[str, str]) -> tuple[Turn, ...]:
    """Return the turns of a conversation. ``leads`` has text to put before a message, by the id of its entry."""
    results = _ResultQueue(messages)
    return merge_turns(
        turn
        for index, logged in enumerate(messages)
        for turn in _iter_turns(logged, index, results, options, leads.get(logged.id, ""))
    )


def merge_turns(turns: Iterator[Turn] | Sequence[Turn]) -> tuple[Turn, ...]:
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


class _ResultQueue:
    """Tool results by call. Ids are not unique in every transcript, so each result is handed out once."""

    def __init__(self, messages: Sequence[LoggedMessage]) -> None:
        self._by_call: dict[str, list[tuple[int, ToolResult, LoggedMessage]]] = {}
        for index, logged in enumerate(messages):
            for block in logged.message.content:
                if isinstance(block, ToolResult):
                    self._by_call.setdefault(block.call_id, []).append((index, block, logged))

    def take(self, call_id: str, after: int) -> tuple[ToolResult, LoggedMessage] | None:
        """Return the first result of a call at or after an index, once."""
        queue = self._by_call.get(call_id, [])
        for at, (index, result, logged) in enumerate(queue):
            if index >= after:
                del queue[at]
                return result, logged
        return None


def _iter_turns(
    logged: LoggedMessage, index: int, results: _ResultQueue, options: TurnOptions, lead: str
) -> Iterator[Turn]:
    message = logged.message
    match message.role:
        case "assistant":
            calls = [block for block in message.content if isinstance(block, ToolCall)]
            text = _shorten(_message_text(message), logged, options)
            texts: tuple[Part, ...] = (TextPart(text),) if text.strip() else ()
            # New ids: two calls of a turn may not share one, and providers refuse some ids of others.
            ids = [f"call_{logged.line}_{number}" for number in range(len(calls))]
            uses = (ToolUse(call_id, call.name, call.arguments) for call_id, call in zip(ids, calls, strict=True))
            yield Turn("assistant", (*texts, *uses))
            outputs = (
                _tool_output(call_id, results.take(call.id, index), options)
                for call_id, call in zip(ids, calls, strict=True)
            )
            yield Turn("user", tuple(outputs))
        case "user":
            yield Turn("user", tuple(_iter_user_parts(logged, options, lead)))
        case "system":
            text = _shorten(_message_text(message), logged, options)
            yield Turn("user", (TextPart(options.fence.block("remark", text)),) if text.strip() else ())
        case "tool":
            return  # rendered with its call; a result without a call is dropped


def _tool_output(call_id: str, result: tuple[ToolResult, LoggedMessage] | None, options: TurnOptions) -> ToolOutput:
    if result is None:
        return ToolOutput(call_id, NO_RESULT, is_error=True)
    block, logged = result
    text = _shorten(block.text, logged, options)
    return ToolOutput(call_id, options.fence.block("result", text, tool=block.name), is_error=block.is_error)


def _iter_user_parts(logged: LoggedMessage, options: TurnOptions, lead: str) -> Iterator[Part]:
    metadata = logged.message.metadata
    group = group_block(metadata.get(GROUP), options.fence)
    if lead:
        yield TextPart(lead)
    if group:
        yield TextPart(group)
    if lead or group:
        yield TextPart(_CURRENT_HEADING)
    quoted = quoted_block(metadata.get(QUOTED), options.fence)
    if quoted:
        yield TextPart(quoted)
    text = _shorten(_message_text(logged.message), logged, options)
    if text.strip():
        sender = clean_line(logged.message.sender or "", _NAME_CHARS)
        yield TextPart(_attribute(sender, logged.message.forwarded_from, text, options.fence))


def _attribute(sender: str, origin: str | None, text: str, fence: Fence) -> str:
    """Return a text with its sender. A forwarded text is data, because another person wrote it."""
    if origin is None:
        return f"{sender}: {text}" if sender else text
    return f"{sender or 'The person'} forwarded a message that somebody else wrote:\n" + fence.block(
        "forwarded", text, **{"from": origin}
    )


def _message_text(message: Message) -> str:
    texts = []
    for block in message.content:
        if isinstance(block, Text):
            texts.append(block.text)
        elif isinstance(block, Attachment):
            texts.append(f"[attached: {clean_line(block.name or block.media_type, _NAME_CHARS)}]")
    return "\n\n".join(texts)


def _shorten(text: str, logged: LoggedMessage, options: TurnOptions) -> str:
    return shorten(text, options.message_tokens, f"the full text is in {options.path}#L{logged.line}")


def group_block(lines: Any, fence: Fence) -> str:
    """Return messages of a group as data under a heading: they are from others and not addressed to the agent."""
    if not isinstance(lines, list) or not lines:
        return ""
    texts = []
    for line in lines:
        if isinstance(line, dict):
            sender = clean_line(str(line.get("sender", "")), _NAME_CHARS)
            time = str(line.get("timestamp", ""))[11:16]
            # Indent further lines, so that one message cannot look like several.
            text = "\n  ".join(str(line.get("text", "")).splitlines())
            texts.append(f"[{time}] {sender}: {text}")
    return f"{_GROUP_HEADING}\n{fence.block('overheard', chr(10).join(texts))}"


def quoted_block(quote: Any, fence: Fence) -> str:
    """Return the message that another one quotes, as data."""
    if not isinstance(quote, dict) or not str(quote.get("text", "")).strip():
        return ""
    return fence.block("quoted", str(quote["text"]), **{"from": str(quote.get("from") or "somebody")})

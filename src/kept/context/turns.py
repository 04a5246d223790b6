"""From messages of a transcript to the turns that a model is sent. Pure.

Whatever a transcript holds, the turns are such as every provider takes: they begin with the user, roles alternate, each
tool call is followed by its result, and each result by the turn of its call.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from kept.context.fence import Fence, one_line
from kept.context.trim import shorten
from kept.context.view import LoggedMessage
from kept.llm.base import Part, TextPart, ToolOutput, ToolUse, Turn
from kept.sessions.entries import QUOTED, Attachment, Message, Text, ToolCall, ToolResult
from kept.sessions.history import CURRENT_HEADING, HEADING
from kept.values import frozen

GROUP = "group"
"""In the metadata of a message: what was said in its group before it."""
NO_RESULT = "Interrupted: whether this was carried out is not known."
_SENDER_CHARS = 80

Role = Literal["user", "assistant"]


@frozen
class TurnOptions:
    """How messages are shown."""

    fence: Fence
    path: str
    """Of the transcript, as it is cited."""
    message_tokens: int
    """A single text that is longer is shown in part."""


def make_turns(said: Sequence[LoggedMessage], showing: TurnOptions, before: Mapping[str, str]) -> tuple[Turn, ...]:
    """``before`` has, by the id of an entry, what is set before that message."""
    results = _Results(said)
    raw = (turn for place, one in enumerate(said) for turn in _turns_of(one, place, results, showing, before))
    return merge_turns(raw)


def merge_turns(turns: Iterator[Turn] | Sequence[Turn]) -> tuple[Turn, ...]:
    """Neighbours of one role are one turn, and the user has the first word."""
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


class _Results:
    """What tools answered, by the call. Ids are not unique in every transcript: each result is given out once."""

    def __init__(self, said: Sequence[LoggedMessage]) -> None:
        self._by_call: dict[str, list[tuple[int, ToolResult, LoggedMessage]]] = {}
        for place, one in enumerate(said):
            for block in one.message.content:
                if isinstance(block, ToolResult):
                    self._by_call.setdefault(block.call_id, []).append((place, block, one))

    def take(self, call_id: str, after: int) -> tuple[ToolResult, LoggedMessage] | None:
        waiting = self._by_call.get(call_id, [])
        for at, (place, result, one) in enumerate(waiting):
            if place >= after:
                del waiting[at]
                return result, one
        return None


def _turns_of(
    one: LoggedMessage, place: int, results: _Results, showing: TurnOptions, before: Mapping[str, str]
) -> Iterator[Turn]:
    message = one.message
    match message.role:
        case "assistant":
            calls = [block for block in message.content if isinstance(block, ToolCall)]
            text = _cut(_spoken(message), one, showing)
            said: tuple[Part, ...] = (TextPart(text),) if text.strip() else ()
            # Two calls of one turn may not share an id, and some are too odd for a provider to take back.
            ids = [f"call_{one.line}_{number}" for number in range(len(calls))]
            uses = tuple(ToolUse(ids[at], call.name, call.arguments) for at, call in enumerate(calls))
            yield Turn("assistant", (*said, *uses))
            outputs = (_output(ids[at], results.take(call.id, place), showing) for at, call in enumerate(calls))
            yield Turn("user", tuple(outputs))
        case "user":
            yield Turn("user", tuple(_user_parts(one, showing, before)))
        case "system":
            yield Turn("user", tuple(_data_parts("remark", one, showing)))
        case "tool":
            return  # given out with its call; one without a call means nothing to anybody


def _output(call_id: str, found: tuple[ToolResult, LoggedMessage] | None, showing: TurnOptions) -> ToolOutput:
    if found is None:
        return ToolOutput(call_id, NO_RESULT, is_error=True)
    result, one = found
    text = _cut(result.text, one, showing)
    return ToolOutput(call_id, showing.fence.block("result", text, tool=result.name), is_error=result.is_error)


def _user_parts(one: LoggedMessage, showing: TurnOptions, before: Mapping[str, str]) -> Iterator[Part]:
    lead = before.get(one.id, "")
    heard = group_block(one.message.metadata.get(GROUP), showing.fence)
    if lead:
        yield TextPart(lead)
    if heard:
        yield TextPart(heard)
    if lead or heard:
        yield TextPart(CURRENT_HEADING)
    quoted = quoted_block(one.message.metadata.get(QUOTED), showing.fence)
    if quoted:
        yield TextPart(quoted)
    text = _cut(_spoken(one.message), one, showing)
    if text.strip():
        sender = one_line(one.message.sender or "", _SENDER_CHARS)
        yield TextPart(_addressed(sender, one.message.forwarded_from, text, showing.fence))


def _addressed(sender: str, origin: str | None, text: str, fence: Fence) -> str:
    """The person's own words, or what the person passed on, which is data: somebody else has written it."""
    if origin is None:
        return f"{sender}: {text}" if sender else text
    return f"{sender or 'The person'} forwarded a message that somebody else wrote:\n" + fence.block(
        "forwarded", text, **{"from": origin}
    )


def _data_parts(kind: str, one: LoggedMessage, showing: TurnOptions) -> Iterator[Part]:
    text = _cut(_spoken(one.message), one, showing)
    if text.strip():
        yield TextPart(showing.fence.block(kind, text))


def _spoken(message: Message) -> str:
    parts = []
    for block in message.content:
        if isinstance(block, Text):
            parts.append(block.text)
        elif isinstance(block, Attachment):
            parts.append(f"[attached: {one_line(block.name or block.media_type, _SENDER_CHARS)}]")
    return "\n\n".join(parts)


def _cut(text: str, one: LoggedMessage, showing: TurnOptions) -> str:
    return shorten(text, showing.message_tokens, f"it stands in full in {showing.path}#L{one.line}")


def group_block(heard: Any, fence: Fence) -> str:
    """What was overheard in a group, under its heading, as data: others than the person it answers have said it."""
    if not isinstance(heard, list) or not heard:
        return ""
    lines = []
    for line in heard:
        if isinstance(line, dict):
            sender = one_line(str(line.get("sender", "")), _SENDER_CHARS)
            when = str(line.get("timestamp", ""))[11:16]
            # A message of several lines must not look like several messages.
            said = "\n  ".join(str(line.get("text", "")).splitlines())
            lines.append(f"[{when}] {sender}: {said}")
    return f"{HEADING}\n{fence.block('overheard', chr(10).join(lines))}"


def quoted_block(quoted: Any, fence: Fence) -> str:
    """What a message quotes of another one, as data."""
    if not isinstance(quoted, dict) or not str(quoted.get("text", "")).strip():
        return ""
    return fence.block("quoted", str(quoted["text"]), **{"from": str(quoted.get("from") or "somebody")})


def turn_text(turn: Turn) -> str:
    """Everything in a turn that takes room."""
    return "\n".join(_part_text(part) for part in turn.parts)


def _part_text(part: Part) -> str:
    match part:
        case TextPart(text) | ToolOutput(text=text):
            return text
        case ToolUse():
            return f"{part.name} {json.dumps(dict(part.arguments), ensure_ascii=False, default=str)}"

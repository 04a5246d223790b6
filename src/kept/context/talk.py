"""A conversation as a text to be read rather than gone on with: for those who write down or summarise it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from kept.context.trim import shorten
from kept.context.view import LoggedMessage
from kept.sessions.entries import Attachment, Text, ToolCall, ToolResult
from kept.tokens import estimate_tokens
from kept.values import frozen

_TOOL_TOKENS = 200
_LABELS = {"user": "Person", "assistant": "Assistant", "tool": "Tool", "system": "Remark"}


@frozen
class Piece:
    """Some messages in a row, with the lines they stand on."""

    first_line: int
    last_line: int
    text: str


def pieces_of(said: Sequence[LoggedMessage], budget_tokens: int) -> list[Piece]:
    """The conversation in as few pieces as fit the budget. One message that does not is shown in part."""
    pieces: list[Piece] = []
    held: list[tuple[int, str]] = []
    size = 0
    for one in said:
        text = shorten(_told(one), budget_tokens, "the rest is in the transcript")
        if not text:
            continue
        needed = estimate_tokens(text) + 1
        if held and size + needed > budget_tokens:
            pieces.append(_piece(held))
            held, size = [], 0
        held.append((one.line, text))
        size += needed
    return [*pieces, _piece(held)] if held else pieces


def _piece(held: Sequence[tuple[int, str]]) -> Piece:
    return Piece(held[0][0], held[-1][0], "\n".join(text for _, text in held))


def _told(one: LoggedMessage) -> str:
    parts = [part for part in _parts(one) if part.strip()]
    if not parts:
        return ""
    who = " ".join(one.message.speaker.split()) or _LABELS[one.message.role]
    said = "\n  ".join("\n".join(parts).splitlines())
    return f"L{one.line} [{one.entry.timestamp:%Y-%m-%d %H:%M}] {who}: {said}"


def _parts(one: LoggedMessage) -> Iterator[str]:
    for block in one.message.content:
        match block:
            case Text(text):
                yield text
            case ToolCall(name=name, arguments=arguments):
                yield shorten(f"→ {name} {json.dumps(arguments, ensure_ascii=False)}", _TOOL_TOKENS, "cut")
            case ToolResult(text=text, is_error=is_error):
                yield shorten(f"← {'failed: ' if is_error else ''}{text}", _TOOL_TOKENS, "cut")
            case Attachment(media_type, name):
                yield f"[attached: {name or media_type}]"

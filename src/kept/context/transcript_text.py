"""A conversation as plain text with line numbers, for a model that summarises it or extracts facts. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from kept.context.trim import shorten
from kept.context.view import LoggedMessage
from kept.limits import estimate_tokens, one_line
from kept.sessions.entries import Attachment, Text, ToolCall, ToolResult
from kept.sessions.spoken import call_text, result_text
from kept.values import frozen

_TOOL_TOKENS = 200
_LABELS = {"user": "Person", "assistant": "Assistant", "tool": "Tool", "system": "Remark"}


@frozen
class TranscriptPiece:
    """Consecutive messages of a transcript as text, with their line numbers."""

    first_line: int
    last_line: int
    text: str


def split_transcript(messages: Sequence[LoggedMessage], budget_tokens: int) -> list[TranscriptPiece]:
    """Return a conversation in as few pieces as fit the budget. A message that does not fit is shown in part."""
    pieces: list[TranscriptPiece] = []
    texts: list[tuple[int, str]] = []
    size = 0
    for logged in messages:
        text = shorten(_render_message(logged), budget_tokens, "the rest is in the transcript")
        if not text:
            continue
        tokens = estimate_tokens(text) + 1
        if texts and size + tokens > budget_tokens:
            pieces.append(_join(texts))
            texts, size = [], 0
        texts.append((logged.line, text))
        size += tokens
    return [*pieces, _join(texts)] if texts else pieces


def _join(texts: Sequence[tuple[int, str]]) -> TranscriptPiece:
    return TranscriptPiece(texts[0][0], texts[-1][0], "\n".join(text for _, text in texts))


def _render_message(logged: LoggedMessage) -> str:
    """Render a message, such as "L12 [2026-03-14 15:09] Ann: …". Further lines are indented."""
    blocks = [text for text in _iter_blocks(logged) if text.strip()]
    if not blocks:
        return ""
    speaker = one_line(logged.message.speaker) or _LABELS[logged.message.role]
    text = "\n  ".join("\n".join(blocks).splitlines())
    return f"L{logged.line} [{logged.entry.timestamp:%Y-%m-%d %H:%M}] {speaker}: {text}"


def _iter_blocks(logged: LoggedMessage) -> Iterator[str]:
    for block in logged.message.content:
        match block:
            case Text(text):
                yield text
            case ToolCall(name=name, arguments=arguments):
                yield shorten(call_text(name, json.dumps(arguments, ensure_ascii=False)), _TOOL_TOKENS, "cut")
            case ToolResult(text=text, is_error=is_error):
                yield shorten(result_text(text, is_error=is_error), _TOOL_TOKENS, "cut")
            case Attachment(media_type, name):
                yield f"[attached: {name or media_type}]"

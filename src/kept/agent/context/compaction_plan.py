"""Choose what a compaction removes from the context and what it keeps. Pure.

`split_transcript` renders what leaves as plain text with line numbers, for a model that summarises it or extracts
facts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from kept.agent.context.shortening import shorten
from kept.agent.context.view import ConversationView, LoggedMessage
from kept.base.limits import estimate_tokens, one_line
from kept.base.values import frozen
from kept.models.base import Part, TextPart, ToolOutput, ToolUse, Turn, turn_text
from kept.sessions.entries import Attachment, Message, Text, ToolCall, ToolResult
from kept.sessions.spoken import call_text, result_text

_TOOL_TOKENS = 200
_LABELS = {"user": "Person", "assistant": "Assistant", "tool": "Tool", "system": "Remark"}


@frozen
class CompactionPlan:
    removed: tuple[LoggedMessage, ...]
    kept: tuple[LoggedMessage, ...]
    first_kept_id: str | None
    tokens_before: int
    """Size of the previous summary and all messages."""
    tokens_kept: int
    open_question: str | None
    """Message of the person, if the cut goes through the answer to it."""


def plan_compaction(view: ConversationView, *, keep_tokens: int, message_tokens: int) -> CompactionPlan | None:
    """Remove the oldest messages until the rest fits into ``keep_tokens``. Return None if none can be removed.

    A tool call is never separated from its result. A question is separated from its answer only if the two are too long
    together.
    """
    messages = view.messages
    sizes = [min(count_message_tokens(logged.message), message_tokens) for logged in messages]
    cut = _choose_cut(messages, find_safe_cuts(messages), _first_fitting(sizes, keep_tokens))
    if cut is None or cut == 0:
        return None
    return CompactionPlan(
        removed=messages[:cut],
        kept=messages[cut:],
        first_kept_id=messages[cut].entry.id if cut < len(messages) else None,
        tokens_before=estimate_tokens(view.summary) + sum(sizes),
        tokens_kept=sum(sizes[cut:]),
        open_question=_find_open_question(messages, cut),
    )


def count_message_tokens(message: Message) -> int:
    parts: list[Part] = []
    for block in message.content:
        match block:
            case Text(text):
                parts.append(TextPart(text))
            case ToolCall(call_id, name, arguments):
                parts.append(ToolUse(call_id, name, arguments))
            case ToolResult(call_id=call_id, text=text):
                parts.append(ToolOutput(call_id, text))
    return estimate_tokens(turn_text(Turn("user", tuple(parts))))


def find_safe_cuts(messages: Sequence[LoggedMessage]) -> list[int]:
    """Return the indexes before which the conversation can be cut without separating a tool call from its result."""
    results: dict[str, list[int]] = {}
    for index, logged in enumerate(messages):
        for block in logged.message.content:
            if isinstance(block, ToolResult):
                results.setdefault(block.call_id, []).append(index)
    cuts, next_safe = [], 0
    for index, logged in enumerate(messages):
        if next_safe <= index:
            cuts.append(index)
        for block in logged.message.content:
            if isinstance(block, ToolCall):
                # Some transcripts reuse ids: the result of a call is the first one after it.
                later = (at for at in results.get(block.id, ()) if at >= index)
                next_safe = max(next_safe, next(later, index) + 1)
    return cuts


def _first_fitting(sizes: Sequence[int], keep_tokens: int) -> int:
    """Return the index from which on all messages together fit."""
    left = keep_tokens
    for index in range(len(sizes) - 1, -1, -1):
        left -= sizes[index]
        if left < 0:
            return index + 1
    return 0


def _choose_cut(messages: Sequence[LoggedMessage], cuts: Sequence[int], fits_from: int) -> int | None:
    """Return the index of the first message to keep.

    Prefer a cut before a question. If the last question and its answer are too long, cut before a part of the answer;
    if that is not possible either, before the last question.
    """
    questions = [index for index in cuts if _is_question(messages, index)]
    fitting = [index for index in questions if index >= fits_from]
    if fitting:
        return fitting[0]
    within = [index for index in cuts if index >= fits_from and messages[index].message.role == "assistant"]
    if within:
        return within[0]
    return max(questions, default=0) or None


def _is_question(messages: Sequence[LoggedMessage], index: int) -> bool:
    """Return whether a message is the first of the person's messages in a row."""
    return messages[index].message.role == "user" and not (index and messages[index - 1].message.role == "user")


def _find_open_question(messages: Sequence[LoggedMessage], cut: int) -> str | None:
    if cut >= len(messages) or messages[cut].message.role == "user":
        return None
    questions = [
        logged.message for logged in messages[:cut] if logged.message.role == "user" and logged.message.text.strip()
    ]
    if not questions:
        return None
    last = questions[-1]
    return f"{last.speaker}: {last.text}" if last.forwarded_from else last.text


# as text


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

"""Conversations: a list with titles, and each to read: messages, tool calls with their results, what happened between,
and what was recalled and sent for every answer.

Secrets are redacted, as everywhere that a conversation is shown.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from starlette.responses import Response

from kept.agent.context import PARTS, read_context
from kept.base.json_values import from_tree
from kept.base.limits import as_list, clip, one_line
from kept.base.redact import redact
from kept.base.values import frozen
from kept.server.web.note_html import NoteSetting, render_note
from kept.server.web.visit import Page, Screen, Visit
from kept.sessions.echoes import is_hidden, iter_blocks
from kept.sessions.entries import (
    FLUSH,
    Attachment,
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
from kept.sessions.spoken import SHOWN_SPEAKERS
from kept.sessions.store import SessionStore
from kept.sessions.transcript import Damage, TranscriptLine, is_receipt, parse_line

PER_PAGE = 50
LINES_PER_PAGE = 300
_ABOVE = 20
"""Lines shown above the line that a citation means."""


@frozen
class LineWindow:
    """Lines of a transcript that fit on a page, and how many there are in all."""

    lines: tuple[TranscriptLine, ...]
    first: int
    total: int

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1

    @property
    def earlier(self) -> int | None:
        return max(1, self.first - LINES_PER_PAGE) if self.first > 1 else None

    @property
    def later(self) -> int | None:
        return self.last + 1 if self.last < self.total else None


def list_conversations(visit: Visit) -> Response:
    page, channel, sessions = visit.page, visit.query.get("channel", "").strip(), visit.site.sessions
    records = sessions.recent(channel=channel or None, limit=page * PER_PAGE + 1)
    return visit.render(
        "conversations.html",
        records=records[(page - 1) * PER_PAGE : page * PER_PAGE],
        has_next=len(records) > page * PER_PAGE,
        channel=channel,
        channels=sessions.channels(),
        problems_found=[f"{problem.path}: {problem.reason}" for problem in sessions.take_problems()],
    )


def show_conversation(visit: Visit) -> Response:
    sessions = visit.site.sessions
    record = sessions.get(visit.path["id"])
    cited = visit.number("line", 0, most=1_000_000_000)
    start = visit.number("from", 0, most=1_000_000_000)
    window = read_window(sessions, record, start or max(1, cited - _ABOVE) if start or cited else None)
    return visit.render(
        "conversation.html",
        record=record,
        views=view_lines(window.lines),
        window=window,
        cited=cited,
        others=related(sessions, record),
    )


def read_window(sessions: SessionStore, record: SessionRecord, first: int | None) -> LineWindow:
    """Return a page of lines from ``first`` on, or the last page."""
    transcript = sessions.transcript(record)
    total = sum(1 for _ in transcript.iter_raw())
    first = max(1, total - LINES_PER_PAGE + 1) if first is None else min(first, max(1, total))
    raw = islice(transcript.iter_raw(), first - 1, first - 1 + LINES_PER_PAGE)
    return LineWindow(tuple(map(parse_line, raw)), first, total)


def related(sessions: SessionStore, record: SessionRecord) -> dict[str, SessionRecord]:
    """Return the sessions that this one continues or that continue it, as far as they are there."""
    ids = {"before": record.predecessor, "after": record.successor}
    records = {name: sessions.find_by_id(session_id) for name, session_id in ids.items() if session_id}
    return {name: other for name, other in records.items() if other is not None}


# lines as a page shows them

MOST_CHARS = 60_000
"""Characters of one text that are shown."""
_SUMMARY_CHARS = 120
_PLAIN = NoteSetting("", {}, has_anchors=False)


@frozen
class TalkBlock:
    """A part of a message. ``kind`` is text, html, thinking, call or attachment."""

    kind: str
    text: str
    label: str = ""
    detail: str = ""
    """Arguments of a call."""
    is_error: bool = False


@frozen
class ContextView:
    """Request that the model was sent for an answer."""

    recalled: tuple[Mapping[str, Any], ...]
    parts: tuple[tuple[str, int], ...]
    """Name and tokens of each part of the request that has any."""
    total: int
    cut: tuple[str, ...] = ()


@frozen
class TalkView:
    """A line of a transcript. ``kind`` is a role, or start, compaction, flush, reset, state, unknown or damage."""

    line: int
    kind: str
    when: dt.datetime | None
    speaker: str = ""
    blocks: tuple[TalkBlock, ...] = ()
    context: ContextView | None = None
    model: str = ""
    body: Any = None
    """The entry itself, of a line that is not a message."""


def view_lines(lines: Sequence[TranscriptLine]) -> list[TalkView]:
    """Return what a page shows of lines. Results of tools are shown with their calls."""
    blocks = [block for line in lines for block in _blocks(line)]
    results = {block.call_id: block for block in blocks if isinstance(block, ToolResult)}
    calls = {block.id for block in blocks if isinstance(block, ToolCall)}
    views = (_view(line, results, calls) for line in lines)
    return [view for view in views if view is not None]


def _blocks(line: TranscriptLine) -> Iterable[Any]:
    content = line.content
    return content.body.content if isinstance(content, Entry) and isinstance(content.body, Message) else ()


def _view(line: TranscriptLine, results: Mapping[str, ToolResult], calls: set[str]) -> TalkView | None:
    match line.content:
        case Entry(body=Message() as message, timestamp=when):
            return _view_message(line.number, message, when, results, calls)
        case Entry(body=body, timestamp=when):
            kind, shown = _view_event(body)
            return TalkView(line.number, kind, when, body=shown)
        case UnknownEntry(type=kind, timestamp=moment):
            return None if "/" in kind else TalkView(line.number, "unknown", moment, body=kind)
        case Damage(reason=reason):
            return TalkView(line.number, "damage", None, body=reason)


def _view_message(
    number: int, message: Message, when: dt.datetime, results: Mapping[str, ToolResult], calls: set[str]
) -> TalkView | None:
    if is_hidden(message):
        return None
    blocks = tuple(
        view for block in iter_blocks(message) if (view := _view_block(block, message.role, results, calls)) is not None
    )
    if not blocks:
        return None
    speaker = message.speaker or SHOWN_SPEAKERS[message.role]
    context = read_context(message)
    return TalkView(
        number, message.role, when, speaker, blocks, view_context(context) if context else None, message.model or ""
    )


def _view_block(block: Any, role: str, results: Mapping[str, ToolResult], calls: set[str]) -> TalkBlock | None:
    match block:
        case Text(text) if role == "assistant":
            return TalkBlock("html", render_note(redact(text, limit=MOST_CHARS), _PLAIN))
        case Text(text):
            return TalkBlock("text", redact(text, limit=MOST_CHARS).strip("\n"))
        case Thinking(text):
            return TalkBlock("thinking", redact(text, limit=MOST_CHARS), _short(text))
        case ToolCall():
            return _view_call(block, results.get(block.id))
        case ToolResult(call_id=call_id) if call_id not in calls:
            text = redact(block.text, limit=MOST_CHARS)
            return TalkBlock("call", text, block.name or "result", "", block.is_error)
        case Attachment(media_type, name):
            return TalkBlock("attachment", name or media_type)
        case _:
            return None


def _view_call(call: ToolCall, result: ToolResult | None) -> TalkBlock:
    arguments = redact(json.dumps(call.arguments, ensure_ascii=False, indent=2), limit=MOST_CHARS)
    text = redact(result.text, limit=MOST_CHARS) if result else ""
    short = _short(", ".join(str(value) for value in call.arguments.values()))
    label = f"{call.name}({short})"
    return TalkBlock("call", text, label, arguments, result.is_error if result else False)


def _short(text: str) -> str:
    return clip(one_line(redact(text, limit=_SUMMARY_CHARS * 4)), _SUMMARY_CHARS)


def view_context(context: Mapping[str, Any]) -> ContextView:
    """Return what a page shows of the record of a context."""
    tokens = context.get("tokens", {})
    sizes = {**tokens, "files": sum(tokens.get("files", {}).values())}
    parts = tuple((name, sizes[name]) for name in PARTS if sizes.get(name))
    cut = tuple(name for name in as_list(context.get("cut")) if isinstance(name, str))
    return ContextView(tuple(context["recalled"]), parts, tokens.get("total", sum(size for _, size in parts)), cut)


# what happened between messages


@frozen
class FlushView:
    outcome: str = ""
    facts: int = 0
    duplicates: int = 0
    note: str | None = None
    review: str | None = None
    reason: str | None = None


def _view_event(body: object) -> tuple[str, Any]:
    """Return the kind of an entry that is not a message, and what the template reads of it: redacted, and checked,
    since a transcript may be edited."""
    match body:
        case SessionStart():
            return "start", None
        case ResetEntry():
            return "reset", body
        case CompactionEntry(summary=summary, receipt=receipt):
            known = dict(receipt) if is_receipt(receipt) else None
            return "compaction", replace(body, summary=redact(summary, limit=MOST_CHARS), receipt=known)
        case StateEntry(name, value):
            with suppress(ValueError):
                if name == FLUSH:
                    flush = from_tree(FlushView, value)
                    return "flush", replace(flush, reason=_short(flush.reason or ""))
            return "state", f"{name}: {_short(json.dumps(value, ensure_ascii=False))}"
    return "unknown", body


SCREEN = Screen(
    name="conversations",
    label="Conversations",
    home="/conversations",
    pages=(
        Page("/conversations", list_conversations, "read"),
        Page("/conversations/{id}", show_conversation, "read"),
    ),
    key="c",
)

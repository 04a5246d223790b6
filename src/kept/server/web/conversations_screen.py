"""Conversations: a list with titles, and each to read: messages, tool calls with their results, what happened between,
and what was recalled and sent for every answer.

Secrets are redacted, as everywhere that a conversation is shown.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
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
from kept.sessions.transcript import Damage, TranscriptLine, is_receipt

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
    # The sessions that this one continues or that continue it, as far as they are there.
    ids = {"before": record.predecessor, "after": record.successor}
    others = {name: sessions.find_by_id(session_id) if session_id else None for name, session_id in ids.items()}
    return visit.render(
        "conversation.html",
        record=record,
        views=view_lines(window.lines),
        window=window,
        cited=cited,
        others=others,
    )


def read_window(sessions: SessionStore, record: SessionRecord, first: int | None) -> LineWindow:
    """Return a page of lines from ``first`` on, or the last page."""
    transcript = sessions.transcript(record)
    total = sum(1 for _ in transcript.iter_lines())
    first = max(1, total - LINES_PER_PAGE + 1) if first is None else min(first, max(1, total))
    lines = islice(transcript.iter_lines(), first - 1, first - 1 + LINES_PER_PAGE)
    return LineWindow(tuple(lines), first, total)


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
class TalkView:
    """A line of a transcript. ``kind`` is a role, or start, compaction, flush, reset, state, unknown or damage."""

    line: int
    kind: str
    when: dt.datetime | None
    speaker: str = ""
    blocks: tuple[TalkBlock, ...] = ()
    context: Mapping[str, Any] | None = None
    model: str = ""
    body: Any = None
    """The entry itself, of a line that is not a message."""


def view_lines(lines: Sequence[TranscriptLine]) -> list[TalkView]:
    """Return what a page shows of lines. Results of tools are shown with their calls."""
    bodies = [line.content.body for line in lines if isinstance(line.content, Entry)]
    blocks = [block for body in bodies if isinstance(body, Message) for block in body.content]
    results = {block.call_id: block for block in blocks if isinstance(block, ToolResult)}
    calls = {block.id for block in blocks if isinstance(block, ToolCall)}
    views = (_view(line, results, calls) for line in lines)
    return [view for view in views if view is not None]


def _view(line: TranscriptLine, results: Mapping[str, ToolResult], calls: set[str]) -> TalkView | None:
    match line.content:
        case Entry(body=Message() as message, timestamp=when):
            shown = () if is_hidden(message) else iter_blocks(message)
            views = (_view_block(block, message.role, results, calls) for block in shown)
            blocks = tuple(view for view in views if view is not None)
            speaker = message.speaker or SHOWN_SPEAKERS[message.role]
            context, model = view_context(message), message.model or ""
            return TalkView(line.number, message.role, when, speaker, blocks, context, model) if blocks else None
        case Entry(body=body, timestamp=when):
            kind, value = _view_event(body)
            return TalkView(line.number, kind, when, body=value)
        case UnknownEntry(type=kind, timestamp=moment):
            return None if "/" in kind else TalkView(line.number, "unknown", moment, body=kind)
        case Damage(reason=reason):
            return TalkView(line.number, "damage", None, body=reason)


def _view_block(block: Any, role: str, results: Mapping[str, ToolResult], calls: set[str]) -> TalkBlock | None:
    match block:
        case Text(text) if role == "assistant":
            return TalkBlock("html", render_note(_shown(text), _PLAIN))
        case Text(text):
            return TalkBlock("text", _shown(text).strip("\n"))
        case Thinking(text):
            return TalkBlock("thinking", _shown(text), _short(text))
        case ToolCall(call_id, name, arguments):
            result = results.get(call_id, ToolResult(call_id, ""))
            label = f"{name}({_short(', '.join(map(str, arguments.values())))})"
            detail = _shown(json.dumps(arguments, ensure_ascii=False, indent=2))
            return TalkBlock("call", _shown(result.text), label, detail, result.is_error)
        case ToolResult(call_id, text) if call_id not in calls:
            return TalkBlock("call", _shown(text), block.name or "result", "", block.is_error)
        case Attachment(media_type, name):
            return TalkBlock("attachment", name or media_type)
    return None


def _shown(text: str) -> str:
    return redact(text, limit=MOST_CHARS)


def _short(text: str) -> str:
    return clip(one_line(redact(text, limit=_SUMMARY_CHARS * 4)), _SUMMARY_CHARS)


def view_context(message: Message) -> Mapping[str, Any] | None:
    """Return what a page shows of the request that the model was sent for an answer: what was recalled, and name and
    tokens of each part."""
    context = read_context(message)
    if context is None:
        return None
    tokens = context.get("tokens", {})
    sizes = {**tokens, "files": sum(tokens.get("files", {}).values())}
    parts = [(name, sizes[name]) for name in PARTS if sizes.get(name)]
    cut = [name for name in as_list(context.get("cut")) if isinstance(name, str)]
    total = tokens.get("total", sum(size for _, size in parts))
    return {"recalled": context["recalled"], "parts": parts, "total": total, "cut": cut}


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
            return "compaction", replace(body, summary=_shown(summary), receipt=known)
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

"""Chat: talk with the agent, whose answer appears as the model writes it. Context: what the model would be sent for a
message now, part by part, and what did not fit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from urllib.parse import urlencode

from starlette.responses import Response, StreamingResponse

from kept.agent.events import Inbound
from kept.agent.material import ContextPreview
from kept.errors import KeptError
from kept.gateway.dispatcher import act_of
from kept.gateway.local_conversation import DEFAULT_CONVERSATION, find_conversation
from kept.models.base import TextPart, ToolOutput, ToolUse, Turn
from kept.server.web.conversations_screen import TalkView, read_window, view_context, view_lines
from kept.server.web.visit import Page, Screen, Visit
from kept.server.web.web_chat import RunningAnswer
from kept.sessions.record import SessionRecord
from kept.sessions.store import SessionStore

STREAM_TYPE = "application/x-ndjson"
_SHOWN_LINES = 60


async def show_chat(visit: Visit) -> Response:
    name = _name(visit)
    record, views = await asyncio.to_thread(load_talk, visit, name)
    answer = visit.site.chat.find_answer(name)
    model = visit.site.config.agent.model
    return await asyncio.to_thread(
        visit.render,
        "chat.html",
        name=name,
        is_default=name == DEFAULT_CONVERSATION,
        record=record,
        views=views,
        answer=answer,
        model=f"{model.name or 'default model'} ({model.provider})" if model.provider else None,
    )


def find_session(sessions: SessionStore, name: str) -> SessionRecord | None:
    """Return the session that a conversation is in now, or None if it has not begun."""
    key, pinned = find_conversation(sessions, name)
    if pinned:
        return sessions.get(pinned)
    return sessions.find(key.channel, key.user_id, account_id=key.account_id, chat_type=key.chat_type)


def load_talk(visit: Visit, name: str) -> tuple[SessionRecord | None, list[TalkView]]:
    """Return the session of a conversation, if it has begun, and its last lines."""
    record = find_session(visit.site.sessions, name)
    return record, view_lines(read_window(record, None).lines)[-_SHOWN_LINES:] if record else []


async def send_message(visit: Visit) -> Response:
    """Answer a message: as a stream of lines for our script, or else on the page once the answer is complete."""
    name = _name(visit)
    text = visit.form.get("text", "").replace("\r\n", "\n")
    visit.grant.require(act_of(Inbound("", text)))
    answer = visit.site.chat.ask(text, name)
    if STREAM_TYPE in visit.request.headers.get("accept", ""):
        return StreamingResponse(_lines(visit, answer), media_type=STREAM_TYPE)
    problem = [event["text"] async for event in answer.follow(visit.site.is_stopping) if event["type"] == "error"]
    return visit.redirect(_url(name), notice=problem[0] if problem else "")


async def follow_answer(visit: Visit) -> Response:
    """Stream the answer that is being written, from its beginning."""
    answer = visit.site.chat.find_answer(_name(visit))
    return StreamingResponse(_lines(visit, answer), media_type=STREAM_TYPE) if answer else Response(status_code=204)


async def stop_answer(visit: Visit) -> Response:
    name = _name(visit)
    await visit.site.chat.stop(name)
    return visit.redirect(_url(name))


async def decide_call(visit: Visit) -> Response:
    """Allow or refuse a tool call that the agent asks for."""
    visit.site.chat.decide(visit.form.get("id", ""), allow=visit.form.get("decision") == "allow")
    return visit.redirect(_url(_name(visit)))


async def _lines(visit: Visit, answer: RunningAnswer) -> AsyncIterator[bytes]:
    async for event in answer.follow(visit.site.is_stopping):
        yield json.dumps(event).encode() + b"\n"


def _name(visit: Visit) -> str:
    return (visit.form.get("with") or visit.query.get("with", "")).strip() or DEFAULT_CONVERSATION


def _url(name: str) -> str:
    return "/chat" if name == DEFAULT_CONVERSATION else f"/chat?{urlencode({'with': name})}"


# context

_RECENT = 20
_MOST_CHARS = 60_000
"""Characters of one turn that the page shows."""


async def show_context(visit: Visit) -> Response:
    text, name = visit.query.get("text", "").strip(), visit.query.get("with", "").strip() or DEFAULT_CONVERSATION
    preview: ContextPreview | None = None
    problem: KeptError | None = None
    try:
        agent = await visit.site.chat.agent()
        record = await asyncio.to_thread(find_session, visit.site.sessions, name)
        preview = await asyncio.to_thread(agent.preview, text or "(your next message)", record.id if record else None)
    except KeptError as exc:  # such as a model that is not set up
        problem = exc
    return await asyncio.to_thread(_render, visit, text, name, preview, problem)


def _render(visit: Visit, text: str, name: str, preview: ContextPreview | None, problem: KeptError | None) -> Response:
    recent = [
        (record.id, record.title or record.key or record.id) for record in visit.site.sessions.recent(limit=_RECENT)
    ]
    return visit.render(
        "context.html",
        text=text,
        name=name,
        problem=problem,
        preview=preview,
        view=view_context({"recalled": preview.context.recalled, **preview.context.record}) if preview else None,
        turn_text=turn_text,
        problems_found=preview.problems if preview else (),
        conversations=[(DEFAULT_CONVERSATION, "Your conversation at this machine"), *recent],
    )


def turn_text(turn: Turn) -> str:
    """Return the beginning of a turn as text: what is said, the tool calls and their results."""
    pieces = []
    for part in turn.parts:
        match part:
            case TextPart():
                pieces.append(part.text)
            case ToolUse():
                pieces.append(f"[calls {part.name} {dict(part.arguments)}]")
            case ToolOutput():
                pieces.append(f"[result] {part.text}")
    return "\n\n".join(pieces)[:_MOST_CHARS]


SCREEN = Screen(
    name="chat",
    label="Chat",
    home="/chat",
    pages=(
        Page("/chat", show_chat, "read"),
        Page("/chat/send", send_message, "talk to the agent", ("POST",)),
        Page("/chat/answer", follow_answer, "read"),
        Page("/chat/stop", stop_answer, "talk to the agent", ("POST",)),
        Page("/chat/decide", decide_call, "decide about calls of tools", ("POST",)),
    ),
    key="a",
)

CONTEXT_SCREEN = Screen(
    name="context",
    label="Context",
    home="/context",
    pages=(Page("/context", show_context, "read"),),
    key="x",
)

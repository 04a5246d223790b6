"""Chat: talk with the agent, whose answer appears as the model writes it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from urllib.parse import urlencode

from starlette.responses import Response, StreamingResponse

from kept.agent.events import Inbound
from kept.gateway.dispatcher import DEFAULT_CONVERSATION, act_of, find_conversation
from kept.server.web.conversations_screen import TalkView, read_window, view_lines
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
    return record, view_lines(read_window(visit.site.sessions, record, None).lines)[-_SHOWN_LINES:] if record else []


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

"""Chat: talk with the agent, whose answer appears as the model writes it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from kept.agent.events import Inbound
from kept.gateway.dispatcher import DEFAULT_CONVERSATION, TERMINAL, act_of
from kept.server.web.conversations_screen import read_window, view_lines
from kept.server.web.visit import Page, Screen, Visit
from kept.server.web.web_chat import RunningAnswer

STREAM_TYPE = "application/x-ndjson"
_SHOWN_LINES = 60


async def show_chat(visit: Visit) -> Response:
    return await asyncio.to_thread(_show_talk, visit, visit.site.chat.running)


def _show_talk(visit: Visit, answer: RunningAnswer | None) -> Response:
    """Show the last lines of the session that the conversation is in now, if it has begun."""
    sessions, model = visit.site.sessions, visit.site.config.agent.model
    record = sessions.find(TERMINAL, DEFAULT_CONVERSATION)
    return visit.render(
        "chat.html",
        record=record,
        views=view_lines(read_window(sessions, record, None).lines)[-_SHOWN_LINES:] if record else [],
        answer=answer,
        model=f"{model.name or 'default model'} ({model.provider})" if model.provider else None,
    )


async def send_message(visit: Visit) -> Response:
    """Answer a message: as a stream of lines for our script, or else on the page once the answer is complete."""
    visit.grant.require(act_of(Inbound("", visit.text)))
    answer = visit.site.chat.ask(visit.text)
    if STREAM_TYPE in visit.request.headers.get("accept", ""):
        return StreamingResponse(_lines(visit, answer), media_type=STREAM_TYPE)
    problem = [event["text"] async for event in answer.follow(visit.site.is_stopping) if event["type"] == "error"]
    return visit.redirect("/chat", notice=problem[0] if problem else "")


async def follow_answer(visit: Visit) -> Response:
    """Stream the answer that is being written, from its beginning."""
    answer = visit.site.chat.running
    return StreamingResponse(_lines(visit, answer), media_type=STREAM_TYPE) if answer else Response(status_code=204)


async def stop_answer(visit: Visit) -> Response:
    await visit.site.chat.stop()
    return visit.redirect("/chat")


async def decide_call(visit: Visit) -> Response:
    """Allow or refuse a tool call that the agent asks for."""
    visit.site.chat.decide(visit.form.get("id", ""), allow=visit.form.get("decision") == "allow")
    return visit.redirect("/chat")


async def _lines(visit: Visit, answer: RunningAnswer) -> AsyncIterator[bytes]:
    async for event in answer.follow(visit.site.is_stopping):
        yield json.dumps(event).encode() + b"\n"


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

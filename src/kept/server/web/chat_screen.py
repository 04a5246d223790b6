"""Chat: talk with the agent, whose answer appears as the model writes it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response, StreamingResponse

from kept.agent.events import (
    AgentEvent,
    ApprovalAsked,
    Inbound,
    Reply,
    describe_approval,
)
from kept.errors import KeptError, UsageError
from kept.gateway.app import open_dispatcher, open_model
from kept.gateway.channels.http import event_json
from kept.gateway.conversation_queue import EventReplay
from kept.gateway.dispatcher import DEFAULT_CONVERSATION, TERMINAL, LocalConversation, act_of
from kept.models.base import ChatModel
from kept.server.web.conversations_screen import read_window, view_lines
from kept.server.web.visit import Page, Screen, Site, Visit

ChatEvent = dict[str, Any]
_POLL_S = 1.0
"""How soon a browser that follows an answer is told that the server stops."""


@dataclass
class RunningAnswer(EventReplay[ChatEvent]):
    """An answer that is being written. Several browsers may follow it."""

    question: str = ""
    task: asyncio.Task[None] | None = None

    @property
    def text(self) -> str:
        return "".join(event["text"] for event in self.events if event["type"] == "delta")

    def tell(self, **event: Any) -> None:
        self.add(event)

    def show(self, event: AgentEvent) -> None:
        if isinstance(event, ApprovalAsked):
            self.tell(type="approval", id=event.id, text=describe_approval(event))
        elif not isinstance(event, Reply):
            name, value = event_json(event)
            self.tell(type=name, **value)
        elif not self.text and not event.silent:
            self.tell(type="delta", text=event.text)  # a command is not streamed

    async def watch(self, is_stopping: Callable[[], bool]) -> AsyncIterator[ChatEvent]:
        """Yield all events until the answer ends or the server is about to stop."""
        async for event in self.follow(heartbeat_s=_POLL_S):
            if is_stopping():
                return
            if event is not None:
                yield event


log = logging.getLogger(__name__)


class WebChat:
    """The conversation with the agent on the pages. Its methods run in the event loop of the server."""

    def __init__(self, site: Site, model: ChatModel | None = None) -> None:
        self.running: RunningAnswer | None = None
        """The answer that is being written."""
        self._site = site
        self._model = model
        self._conversation: LocalConversation | None = None

    def ask(self, text: str) -> RunningAnswer:
        """Begin to answer a message. Raise UsageError while another answer is being written."""
        text = text.strip()
        if not text:
            raise UsageError("There is no message.", hint="Write one.")
        if self.running is not None:
            raise UsageError("An answer is being written.", hint="Wait for it, or stop it.")
        answer = self.running = RunningAnswer(question=text)
        answer.task = asyncio.create_task(self._answer(answer))
        return answer

    async def stop(self) -> None:
        if self.running is not None and self.running.task is not None:
            self.running.task.cancel()
            await asyncio.wait([self.running.task])

    def decide(self, approval_id: str, *, allow: bool) -> None:
        talk = self._conversation
        if talk is None or not talk.dispatcher.agent.approvals.decide(approval_id, allow=allow, by=TERMINAL):
            raise UsageError("The agent no longer waits for this decision.")

    async def close(self) -> None:
        """Stop the answer and end the model."""
        await self.stop()
        if self._conversation is not None:
            await self._conversation.dispatcher.close()
        if self._model is not None:
            await self._model.close()

    def _open(self) -> LocalConversation:
        site = self._site
        self._model = self._model or open_model(site.loaded, clock=site.memory.clock)
        return LocalConversation(open_dispatcher(site.memory, site.sessions, self._model), ask=_decide_on_page)

    async def _answer(self, answer: RunningAnswer) -> None:
        try:
            if self._conversation is None:
                self._conversation = await asyncio.to_thread(self._open)
            await self._conversation.answer(answer.question, answer.show)
        except asyncio.CancelledError:
            answer.tell(type="notice", text="Stopped.")
            if self._conversation is not None:
                await self._conversation.stop()
        except KeptError as exc:
            answer.tell(type="error", text=f"{exc.message} {exc.hint}".strip())
        except Exception as exc:  # an answer that fails must not end the server
            log.exception("an answer failed")
            answer.tell(type="error", text=f"Unexpected error: {type(exc).__name__}: {exc}")
        finally:
            self.running = None
            answer.tell(type="done")
            answer.end()


async def _decide_on_page(asked: ApprovalAsked) -> None:
    """Leave the decision to `WebChat.decide`."""


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
    problem = [event["text"] async for event in answer.watch(visit.site.is_stopping) if event["type"] == "error"]
    return visit.redirect("/chat", notice=problem[0] if problem else "")


async def follow_answer(visit: Visit) -> Response:
    answer = visit.site.chat.running
    return StreamingResponse(_lines(visit, answer), media_type=STREAM_TYPE) if answer else Response(status_code=204)


async def stop_answer(visit: Visit) -> Response:
    await visit.site.chat.stop()
    return visit.redirect("/chat")


async def decide_call(visit: Visit) -> Response:
    visit.site.chat.decide(visit.form.get("id", ""), allow=visit.form.get("decision") == "allow")
    return visit.redirect("/chat")


async def _lines(visit: Visit, answer: RunningAnswer) -> AsyncIterator[bytes]:
    async for event in answer.watch(visit.site.is_stopping):
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

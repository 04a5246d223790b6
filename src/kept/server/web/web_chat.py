"""The chat on the pages: an answer runs in the server, and browsers follow it.

It continues if a tab is closed, and a tab that is opened meanwhile shows what there is of it. The conversation is the
one of `kept chat`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kept.agent.events import (
    AgentEvent,
    ApprovalAsked,
    ApprovalDesk,
    Notice,
    Reply,
    ReplyDelta,
    ToolEnded,
    ToolStarted,
    describe_approval,
)
from kept.errors import KeptError, UsageError
from kept.gateway.app import open_dispatcher, open_model
from kept.gateway.dispatcher import DEFAULT_CONVERSATION, TERMINAL, Dispatcher, LocalConversation
from kept.models.base import ChatModel
from kept.server.web.visit import Site

ChatEvent = dict[str, Any]
_POLL_S = 1.0
"""How soon a browser that follows an answer is told that the server stops."""


@dataclass
class RunningAnswer:
    """An answer that is being written. Several browsers may follow it."""

    question: str
    events: list[ChatEvent] = field(default_factory=list)
    is_done: bool = False
    task: asyncio.Task[None] | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def text(self) -> str:
        """Return what was written so far."""
        return "".join(event["text"] for event in self.events if event["type"] == "delta")

    def add(self, **event: Any) -> None:
        self.events.append(event)
        self._changed.set()
        self._changed = asyncio.Event()

    def show(self, event: AgentEvent) -> None:
        match event:
            case ReplyDelta():
                self.add(type="delta", text=event.text)
            case ToolStarted():
                self.add(type="tool", name=event.name)
            case ToolEnded() if not event.ok:
                self.add(type="notice", text=f"{event.name} did not work.")
            case Notice():
                self.add(type="notice", text=event.text)
            case ApprovalAsked():
                self.add(type="approval", id=event.id, text=describe_approval(event))
            case Reply() if not self.text and not event.silent:
                self.add(type="delta", text=event.text)  # a command is not streamed
            case _:
                pass

    def finish(self) -> None:
        self.is_done = True
        self.add(type="done")

    async def follow(self, is_stopping: Callable[[], bool] = lambda: False) -> AsyncIterator[ChatEvent]:
        """Yield all events, those before this call too, until the answer ends or the server is about to stop."""
        at = 0
        while not is_stopping():
            changed = self._changed
            while at < len(self.events):
                yield self.events[at]
                at += 1
            if self.is_done:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), _POLL_S)


log = logging.getLogger(__name__)


class WebChat:
    """The conversation with the agent on the pages. Its methods run in the event loop of the server."""

    def __init__(self, site: Site, model: ChatModel | None = None) -> None:
        self.running: RunningAnswer | None = None
        """The answer that is being written."""
        self._site = site
        self._model = model
        self._dispatcher: Dispatcher | None = None
        self._conversation: LocalConversation | None = None

    def ask(self, text: str) -> RunningAnswer:
        """Begin to answer a message. Raise UsageError while another answer is being written."""
        text = text.strip()
        if not text:
            raise UsageError("There is no message.", hint="Write one.")
        if self.running is not None:
            raise UsageError("An answer is being written.", hint="Wait for it, or stop it.")
        answer = self.running = RunningAnswer(text)
        answer.task = asyncio.create_task(self._answer(answer))
        return answer

    async def stop(self) -> None:
        """Stop the answer that is being written, if there is one."""
        if self.running is not None and self.running.task is not None:
            self.running.task.cancel()
            await asyncio.wait([self.running.task])

    def decide(self, approval_id: str, *, allow: bool) -> None:
        """Decide about a tool call that the agent has asked for."""
        desk = self._dispatcher.agent.approvals if self._dispatcher is not None else ApprovalDesk()
        if not desk.decide(approval_id, allow=allow, by=TERMINAL):
            raise UsageError("The agent no longer waits for this decision.")

    async def close(self) -> None:
        """Stop the answer and end the model."""
        await self.stop()
        if self._dispatcher is not None:
            await self._dispatcher.close()
        if self._model is not None:
            await self._model.close()

    def _open(self) -> LocalConversation:
        site = self._site
        if self._dispatcher is None:
            self._model = self._model or open_model(site.loaded, clock=site.memory.clock)
            self._dispatcher = open_dispatcher(site.memory, site.sessions, self._model)
        return LocalConversation(
            self._dispatcher,
            site.sessions,
            site.memory.clock,
            name=DEFAULT_CONVERSATION,
            ask=_decide_on_page,
        )

    async def _answer(self, answer: RunningAnswer) -> None:
        try:
            if self._conversation is None:
                self._conversation = await asyncio.to_thread(self._open)
            await self._conversation.answer(answer.question, answer.show)
        except asyncio.CancelledError:
            answer.add(type="notice", text="Stopped.")
            if self._conversation is not None:
                await self._conversation.stop()
        except KeptError as exc:
            answer.add(type="error", text=f"{exc.message} {exc.hint}".strip())
        except Exception as exc:  # an answer that fails must not end the server
            log.exception("an answer failed")
            answer.add(type="error", text=f"Unexpected error: {type(exc).__name__}: {exc}")
        finally:
            self.running = None
            answer.finish()


async def _decide_on_page(asked: ApprovalAsked) -> None:
    """Leave the decision to `WebChat.decide`."""

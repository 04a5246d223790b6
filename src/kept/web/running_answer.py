"""An answer that is being written, for the browsers that follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from kept.agent.approvals import describe_approval
from kept.agent.events import AgentEvent, ApprovalAsked, Notice, Reply, ReplyDelta, ToolEnded, ToolStarted
from kept.web.site import POLL_S

_MAX_EVENTS = 20_000
"""Pieces of one answer that are kept for browsers. The transcript has the whole answer in any case."""

ChatEvent = dict[str, Any]


class RunningAnswer:
    """An answer that is being written. Several browsers may follow it."""

    def __init__(self, question: str) -> None:
        self.question = question
        self.events: list[ChatEvent] = []
        self.is_done = False
        self.task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    @property
    def text(self) -> str:
        """Return what was written so far."""
        return "".join(event["text"] for event in self.events if event["type"] == "delta")

    def add(self, **event: Any) -> None:
        if len(self.events) < _MAX_EVENTS or event["type"] != "delta":
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
                await asyncio.wait_for(changed.wait(), POLL_S)

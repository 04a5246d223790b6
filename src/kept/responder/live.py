"""What is being written at the moment, for those who watch: each sees all of it, however late they came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from kept.agent.events import AgentEvent


class EventReplay:
    """The events of one turn so far, and a way to wait for more."""

    def __init__(self) -> None:
        self._events: list[AgentEvent] = []
        self._ended = False
        self._more = asyncio.Event()

    def add(self, event: AgentEvent) -> None:
        self._events.append(event)
        self._wake()

    def end(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    async def follow(self) -> AsyncIterator[AgentEvent]:
        seen = 0
        while True:
            while seen < len(self._events):
                seen += 1
                yield self._events[seen - 1]
            if self._ended:
                return
            await self._more.wait()

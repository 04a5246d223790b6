"""How many messages wait for an answer, and whether one more is taken."""

from __future__ import annotations

import asyncio

from kept.config import ResponderSettings
from kept.errors import ConversationFull, QueueFull


class QueueLimits:
    def __init__(self, settings: ResponderSettings) -> None:
        self.limit = settings.max_queued
        self.limit_each = settings.max_queued_per_conversation
        self.closed = False
        self._open: dict[str, int] = {}
        self._freed = asyncio.Event()

    @property
    def taken(self) -> int:
        return sum(self._open.values())

    def require(self, key: str) -> None:
        if self.closed:
            raise QueueFull("The gateway is shutting down.")
        if self._open.get(key, 0) >= self.limit_each:
            raise ConversationFull("Too many messages of this conversation wait for an answer.")
        if self.taken >= self.limit:
            raise QueueFull("Too many messages wait for an answer.")

    def take(self, key: str) -> None:
        self._open[key] = self._open.get(key, 0) + 1

    def give_back(self, key: str, count: int = 1) -> None:
        left = self._open.get(key, 0) - count
        if left > 0:
            self._open[key] = left
        else:
            self._open.pop(key, None)
        self._freed.set()
        self._freed = asyncio.Event()

    async def wait(self, key: str) -> None:
        """Returns when one more message of a conversation is taken."""
        while True:
            freed = self._freed
            try:
                self.require(key)
            except QueueFull:
                await freed.wait()
            else:
                return

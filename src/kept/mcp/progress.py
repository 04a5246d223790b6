"""Carrying progress from the thread that indexes to the client that waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kept.records import Progress

Send = Callable[[float, float, str], Awaitable[None]]


class ProgressRelay:
    """The thread leaves a message and never waits: when the client is slow or gone, only the latest is kept."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._latest: tuple[int, int, str] = (0, 0, "")

    @property
    def callback(self) -> Progress:
        return self._report

    def _report(self, completed: int, total: int, label: str) -> None:
        self._latest = (completed, total, label)
        try:
            self._loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:
            pass  # the server has ended, and nobody is left to tell

    async def run(self) -> None:
        """Until it is cancelled. What is sent only ever grows, as the protocol wants it."""
        sent = 0
        while True:
            await self._news.wait()
            self._news.clear()
            completed, total, label = self._latest
            if completed > sent:
                sent = completed
                await self._send(completed, total, label)

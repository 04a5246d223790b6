"""Progress of a call: reported by the thread that indexes, sent to the client that waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kept.records import Progress

Send = Callable[[float, float, str], Awaitable[None]]


class ProgressRelay:
    """Passes the latest report on. The thread never waits: if the client is slow or gone, older reports are dropped."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._latest: tuple[int, int, str] = (0, 0, "")

    @property
    def callback(self) -> Progress:
        return self._report

    def _report(self, completed: int, total: int, label: str) -> None:
        self._latest = (completed, total, label)
        try:
            self._loop.call_soon_threadsafe(self._changed.set)
        except RuntimeError:
            pass  # the server has ended

    async def run(self) -> None:
        """Send reports until cancelled. The protocol requires that progress increases."""
        sent = 0
        while True:
            await self._changed.wait()
            self._changed.clear()
            completed, total, label = self._latest
            if completed > sent:
                sent = completed
                await self._send(completed, total, label)

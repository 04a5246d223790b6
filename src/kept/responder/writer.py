"""Changing the inbox from the event loop: in a thread of its own, one change after another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from kept.errors import WriteFailed
from kept.responder.delivery import FIRST_WAIT_S, LONGEST_WAIT_S

T = TypeVar("T")

log = logging.getLogger(__name__)


class InboxWriter:
    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kept-inbox")

    async def once(self, change: Callable[[], T]) -> T:
        """A change that somebody waits for, and can be told that it failed. It is made even if they have gone."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, change))

    async def surely(self, change: Callable[[], T]) -> T:
        """A step that must be on disk before the next one: while the disk is full, that waits."""
        wait_s = FIRST_WAIT_S
        while True:
            try:
                return await self.once(change)
            except WriteFailed as exc:
                log.error("the inbox cannot be written; trying again (%s)", exc.message)
                await asyncio.sleep(wait_s)
                wait_s = min(LONGEST_WAIT_S, wait_s * 2)

    def close(self) -> None:
        self._thread.shutdown()

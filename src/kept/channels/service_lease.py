"""Serves a chat service in one gateway of a team at a time: a bot's messages can be fetched by one program only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kept.errors import KeptError

if TYPE_CHECKING:
    from kept.postgres.leases import Lease

_RENEWALS = 3

log = logging.getLogger(__name__)


class ServiceLease:
    """Lease of a service. While this gateway has it, ``serve`` runs and ``is_held`` is True."""

    def __init__(self, lease: Lease, serve: Callable[[], Awaitable[None]]) -> None:
        self.is_held = False
        self._lease = lease
        self._serve = serve

    async def run(self) -> None:
        """Serve whenever no other gateway does. Raise what ``serve`` raises."""
        serving: asyncio.Future[None] | None = None
        try:
            while True:
                self.is_held = await self._renew()
                if self.is_held and serving is None:
                    serving = asyncio.ensure_future(self._serve())
                elif not self.is_held and serving is not None:
                    await _cancel(serving)
                    serving = None
                pause = asyncio.sleep(self._lease.seconds / _RENEWALS)
                if serving is None:
                    await pause
                    continue
                waiting = asyncio.ensure_future(pause)
                await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if serving.done():
                    return serving.result()
        finally:
            self.is_held = False
            if serving is not None:
                await _cancel(serving)
            await self._release()

    async def _renew(self) -> bool:
        """Return whether this gateway may serve. Without the database, nobody can tell: it does not."""
        try:
            return await asyncio.to_thread(self._lease.renew)
        except KeptError as exc:
            log.warning("%s: cannot be served now (%s)", self._lease.name, exc.message)
            return False

    async def _release(self) -> None:
        try:
            await asyncio.to_thread(self._lease.release)
        except KeptError as exc:
            log.warning("%s: the lease ends by itself (%s)", self._lease.name, exc.message)


async def _cancel(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.wait([task])

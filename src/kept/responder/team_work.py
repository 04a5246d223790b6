"""Work of a responder whose inbox other gateways share: signs of life, news of the others, and taking over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kept.errors import KeptError
from kept.postgres.notifications import Listener
from kept.responder.answer_runner import InboxWriter
from kept.responder.shared_inbox import SharedInbox, inbox_topic

if TYPE_CHECKING:
    from kept.responder.responder import Responder

_RENEWALS = 3
"""Renewals within the time of a lease: one that fails does not end it."""

log = logging.getLogger(__name__)


class TeamWork:
    """Task beside a responder. It renews the lease of this gateway, and looks whenever another one has changed the
    inbox."""

    def __init__(self, responder: Responder, writer: InboxWriter) -> None:
        assert isinstance(responder.inbox, SharedInbox)
        self._responder = responder
        self._inbox = responder.inbox
        self._writer = writer
        self._changed = asyncio.Event()
        self._listener: Listener | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin with a lease: only a gateway that is alive can own conversations."""
        await self._writer.write_until_done(self._inbox.renew)
        loop = asyncio.get_running_loop()
        wake: Callable[[], object] = partial(loop.call_soon_threadsafe, self._changed.set)
        self._listener = Listener(self._inbox.database, inbox_topic(self._inbox.agent), wake, me=self._inbox.owner)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End the lease, so that the others take over at once what is left."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._listener is not None:
            await asyncio.to_thread(self._listener.stop)
        try:
            await self._writer.write(self._inbox.release)
        except KeptError as exc:
            log.warning("the lease of this gateway ends by itself (%s)", exc.message)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        interval_s = self._inbox.lease_s / _RENEWALS
        due = loop.time() + interval_s
        while True:
            try:
                async with asyncio.timeout_at(due):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            is_due = loop.time() >= due
            if is_due:
                due = loop.time() + interval_s
            try:
                await self._look(renew=is_due)
            except KeptError as exc:
                log.warning("the inbox of the team cannot be read; trying again (%s)", exc.message)
            except Exception:
                log.exception("the inbox of the team cannot be read; trying again")

    async def _look(self, *, renew: bool) -> None:
        lost = await self._writer.write(self._inbox.renew) if renew else set()
        changed = await self._writer.write(self._inbox.catch_up)
        self._responder.give_up(lost)
        self._responder.note_changes(changed)
        await self._responder.take_over()

"""Channels as the responder sees them, and delivery of a reply: part by part, and no part twice.

Before a part is sent, the inbox records that it is about to be. If the process is killed between that record and the
one that follows it, the part may have arrived: it is not sent again, and a warning is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from kept.errors import DeliveryRefused, NotSent
from kept.responder.inbox import AnswerRun
from kept.responder.timing import ResponderTiming

log = logging.getLogger(__name__)


class Channel(Protocol):
    """Transport of messages and replies."""

    pushes: bool
    """True if replies have to be sent. Otherwise clients fetch them, any number of times."""
    limit: int | None
    """Largest length of a part, as ``measure`` counts it."""
    debounce_ms: int

    def measure(self, text: str) -> int: ...

    async def send(self, to: Mapping[str, Any], text: str) -> None:
        """Send one part. ``to`` is the metadata of the message that is answered.

        Raise NotSent if the part was certainly not sent, DeliveryRefused if it never will be. After any other error
        the part may have arrived, and it is not sent again.
        """
        ...

    async def show_typing(self, to: Mapping[str, Any]) -> None:
        """Show for a few seconds that an answer is being written. Never raise."""
        ...


class PullChannel:
    """Channel whose clients fetch their replies. Nothing is sent."""

    pushes = False
    limit: int | None = None

    def __init__(self, *, debounce_ms: int = 0) -> None:
        self.debounce_ms = debounce_ms

    def measure(self, text: str) -> int:
        return len(text)

    async def send(self, to: Mapping[str, Any], text: str) -> None:
        raise AssertionError("a pull channel sends nothing")

    async def show_typing(self, to: Mapping[str, Any]) -> None:
        return


Mark = Callable[..., Awaitable[AnswerRun]]
"""`Inbox.mark`, called until it is on disk."""


async def deliver(
    run: AnswerRun, channel: Channel, to: Mapping[str, Any], mark: Mark, timing: ResponderTiming
) -> AnswerRun:
    """Send the parts of a reply that are not settled. Retry a part for as long as it was certainly not sent."""
    if run.sending:
        run = await _give_up(run, mark, "the program ended while it was being sent")
    backoff = timing.backoff()
    while not run.finished:
        run = await mark(run, "sending")
        try:
            await channel.send(to, (run.parts or ())[run.settled])
        except NotSent as exc:
            run = await mark(run, "unsent")
            log.warning("%s: a reply could not be sent yet (%s)", run.channel, exc.message)
            await asyncio.sleep(backoff.next_s() if exc.retry_after_s is None else exc.retry_after_s)
        except DeliveryRefused as exc:
            run = await _give_up(run, mark, exc.message)
        except Exception as exc:  # noqa: BLE001 - a channel's library may raise anything, and the part may have left
            run = await _give_up(run, mark, f"{type(exc).__name__} while it was being sent")
        else:
            run = await mark(run, "sent")
            backoff.reset()
    return run


async def _give_up(run: AnswerRun, mark: Mark, reason: str) -> AnswerRun:
    log.warning("%s: part %d of a reply is not sent again: %s", run.channel, run.settled + 1, reason)
    return await mark(run, "unsure", reason=reason)

"""Sending a reply part by part, and never a part twice.

That a part is about to be sent is on disk before it leaves. A kill between sending and writing down that it was sent
leaves a part of which nobody knows: it is not sent again, and that is said.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kept.errors import DeliveryRefused, NotSent
from kept.responder.letters import AnswerRun
from kept.responder.outlet import Channel

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0

Mark = Callable[..., Awaitable[AnswerRun]]
"""Writes down what became of the first part that is not settled, and gives the turn as it is then."""

log = logging.getLogger(__name__)


async def deliver(turn: AnswerRun, outlet: Channel, to: Mapping[str, Any], mark: Mark) -> AnswerRun:
    if turn.sending:
        turn = await _give_up(turn, mark, "the program ended while it was being sent")
    wait_s = FIRST_WAIT_S
    while not turn.finished:
        turn = await mark(turn, "sending")
        try:
            await outlet.send(to, (turn.parts or ())[turn.settled])
        except NotSent as exc:
            turn = await mark(turn, "unsent")
            log.warning("%s: a reply could not be sent yet (%s)", turn.channel, exc.message)
            await asyncio.sleep(wait_s if exc.retry_after_s is None else exc.retry_after_s)
            wait_s = min(LONGEST_WAIT_S, wait_s * 2)
        except DeliveryRefused as exc:
            turn = await _give_up(turn, mark, exc.message)
        except Exception as exc:  # noqa: BLE001 - a channel's library may raise anything, and then nobody knows
            turn = await _give_up(turn, mark, f"{type(exc).__name__} while it was being sent")
        else:
            turn = await mark(turn, "sent")
            wait_s = FIRST_WAIT_S
    return turn


async def _give_up(turn: AnswerRun, mark: Mark, reason: str) -> AnswerRun:
    log.warning("%s: part %d of a reply is not sent again: %s", turn.channel, turn.settled + 1, reason)
    return await mark(turn, "unsure", reason=reason)

"""What a gateway still has to do, for whoever looks from outside: it may be running, or be gone."""

from __future__ import annotations

import os

from kept.clock import SystemClock
from kept.config import Config
from kept.responder.inbox import Inbox
from kept.values import frozen


def inbox_path(config: Config) -> str:
    return config.paths.inbox


@frozen
class InboxState:
    waiting: int
    """Messages that were accepted and have no reply yet."""
    undelivered: int
    """Replies that are still to be sent."""
    unsure: int
    """Replies that may not have arrived, and are not sent again."""
    damaged: int = 0
    """Lines of the inbox that cannot be read. The gateway moves them away when it starts."""


def find_inbox_state(config: Config) -> InboxState | None:
    """None where there never was a gateway."""
    path = inbox_path(config)
    if not os.path.exists(path):
        return None
    inbox = Inbox(path, clock=SystemClock(), read_only=True)
    unfinished = inbox.unfinished()
    answering = sum(len(turn.ids) for turn in unfinished if turn.parts is None)
    undelivered = sum(turn.parts is not None for turn in unfinished)
    return InboxState(len(inbox.waiting()) + answering, undelivered, len(inbox.unsure()), len(inbox.faults))

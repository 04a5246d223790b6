"""Opens the inbox that the settings describe, and reads what gateways have left in it."""

from __future__ import annotations

import os

from kept.clock import Clock, SystemClock
from kept.config import Config
from kept.responder.file_inbox import FileInbox
from kept.responder.inbox import Inbox
from kept.values import frozen


def open_inbox(config: Config, clock: Clock) -> Inbox:
    """Open the inbox of an agent, to answer its messages."""
    if not config.memory_search.store.is_shared:
        return FileInbox(config.paths.inbox, clock=clock)
    from kept.postgres.open_database import open_database
    from kept.responder.shared_inbox import SharedInbox

    database = open_database(config.memory_search.store)
    return SharedInbox(database, config.agent_id, clock=clock, lease_s=config.gateway.lease_seconds)


@frozen
class InboxState:
    """Work that a gateway has left, running or not."""

    waiting: int
    """Accepted messages without a reply."""
    undelivered: int
    """Replies that are still to be sent."""
    unsure: int
    """Replies that may not have arrived and are not sent again."""
    damaged: int = 0
    """Lines that cannot be read. The gateway moves them away when it starts."""


def find_inbox_state(config: Config) -> InboxState | None:
    """Return the state of the inbox, or None if no gateway ever ran."""
    if config.memory_search.store.is_shared:
        inbox = open_inbox(config, SystemClock())
        return _state_of(inbox) if inbox.messages() else None
    path = config.paths.inbox
    if not os.path.exists(path):
        return None
    return _state_of(FileInbox(path, clock=SystemClock(), read_only=True))


def _state_of(inbox: Inbox) -> InboxState:
    unfinished = inbox.unfinished()
    answering = sum(len(run.message_ids) for run in unfinished if run.parts is None)
    undelivered = sum(run.parts is not None for run in unfinished)
    return InboxState(len(inbox.waiting()) + answering, undelivered, len(inbox.unconfirmed_runs()), len(inbox.faults))

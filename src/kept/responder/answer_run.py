"""Accepted messages, and the answer runs that they become."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kept.agent.events import Inbound
from kept.remote_errors import MessageConflict
from kept.values import frozen

Name = tuple[str, str]
"""Channel of a message, and its id there."""


@frozen
class AcceptedMessage:
    """Message that was accepted. Its channel and id identify it."""

    channel: str
    id: str
    key: str
    """Full session key of its conversation."""
    inbound: Inbound
    accepted_at: dt.datetime


@frozen
class AnswerRun:
    """Messages that are answered together, and the progress of their answer."""

    id: str
    channel: str
    key: str
    message_ids: tuple[str, ...]
    session_id: str
    """Chosen when the run began, so that it stays the same after a crash."""
    attempts: int = 1
    parts: tuple[str, ...] | None = None
    """Reply. Empty if there is nothing to send, None until there is a reply."""
    push: bool = False
    """True if the parts have to be sent; otherwise they are fetched."""
    entry_id: str | None = None
    error: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    """Notices, tools and tokens of the answer, for clients."""
    cancelled: bool = False
    sending: bool = False
    """True if the first part that is not settled is being sent."""
    settled: int = 0
    """Number of parts that were sent or given up."""
    unconfirmed_parts: tuple[tuple[int, str], ...] = ()
    """Parts that were given up and may not have arrived, with the reason."""
    preview: Mapping[str, Any] | None = None
    """Message that shows the reply as it is written, as the channel describes it."""

    @property
    def edits_next(self) -> bool:
        """True if the next part replaces the text of the preview."""
        return self.preview is not None and self.settled == 0

    @property
    def finished(self) -> bool:
        return self.cancelled or (self.parts is not None and (not self.push or self.settled >= len(self.parts)))

    @property
    def reply(self) -> str | None:
        return "\n\n".join(self.parts) if self.parts else None


def message_status(run: AnswerRun | None) -> str:
    """Return the status of a message, given its run if it has one."""
    if run is None:
        return "waiting"
    if run.cancelled:
        return "cancelled"
    if run.parts is None:
        return "answering"
    return "failed" if run.error else "answered"


def check_same(message: AcceptedMessage, key: str, text: str) -> AcceptedMessage:
    """Return the message if it has this key and text. Raise MessageConflict otherwise."""
    is_same = message.inbound.text in (text, "")  # a text that was forgotten is empty
    if message.key != key or not is_same:
        raise MessageConflict(f"Another message has the id '{message.id}' already.")
    return message

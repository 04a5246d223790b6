"""From what a channel received to messages of a transcript."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kept.agent.events import GroupLine, Inbound
from kept.context.turns import GROUP
from kept.context.view import ANSWERS, INBOUND
from kept.sessions.entries import Message, Text, format_time

_OURS = (INBOUND, ANSWERS, GROUP)
"""What a channel says by these names is not taken over: they mean something here."""


def messages_of(inbound: Sequence[Inbound], group: Sequence[GroupLine]) -> list[Message]:
    """Each with its id. What was said in the group before them stays with the first."""
    return [_message(one, group if at == 0 else ()) for at, one in enumerate(inbound)]


def _message(inbound: Inbound, group: Sequence[GroupLine]) -> Message:
    metadata: dict[str, Any] = {name: value for name, value in (inbound.metadata or {}).items() if name not in _OURS}
    metadata[INBOUND] = inbound.id
    if inbound.timestamp:
        metadata["sent"] = format_time(inbound.timestamp)
    if group:
        metadata[GROUP] = [
            {"sender": line.sender, "text": line.text, "timestamp": format_time(line.timestamp)} for line in group
        ]
    return Message("user", (Text(inbound.text),), sender=inbound.sender, metadata=metadata)

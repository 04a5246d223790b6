"""Messages that were accepted, and the turns they became part of, as values and as records of the journal."""

from __future__ import annotations

import datetime as dt
from typing import Any

from kept.agent.events import Inbound
from kept.limits import is_time
from kept.values import frozen

Record = dict[str, Any]


@frozen
class Letter:
    """A message that was accepted. Its channel and its id name it."""

    channel: str
    id: str
    key: str
    """Whose conversation it belongs to, as a session's key in full."""
    message: Inbound
    accepted: dt.datetime


@frozen
class Turn:
    """Messages that are answered together, and how far that is."""

    id: str
    channel: str
    key: str
    ids: tuple[str, ...]
    session_id: str
    """Chosen when the turn began: it is the same after a crash, however long that was."""
    attempts: int = 1
    parts: tuple[str, ...] | None = None
    """The reply; none at all where there was nothing to say. None until there is one."""
    push: bool = False
    entry_id: str | None = None
    error: str | None = None
    cancelled: bool = False
    sending: bool = False
    """Whether the first part that is not settled was on its way."""
    settled: int = 0
    """Parts that arrived, or of which it cannot be known."""
    unsure: tuple[tuple[int, str], ...] = ()

    @property
    def finished(self) -> bool:
        return self.cancelled or (self.parts is not None and (not self.push or self.settled >= len(self.parts)))

    @property
    def reply(self) -> str | None:
        return "\n\n".join(self.parts) if self.parts else None


def record_of_letter(letter: Letter) -> Record:
    """What is written here can be read again: a time that is out of range counts as not given."""
    message = letter.message
    sent = message.timestamp if message.timestamp and is_time(message.timestamp) else None
    return {
        "type": "received",
        "channel": letter.channel,
        "id": letter.id,
        "key": letter.key,
        "at": letter.accepted.isoformat(),
        "text": message.text,
        "sender": message.sender,
        "timestamp": sent.isoformat() if sent else None,
        "metadata": dict(message.metadata or {}),
    }


def letter_of(record: Record) -> Letter:
    when = record["timestamp"]
    return Letter(
        record["channel"],
        record["id"],
        record["key"],
        Inbound(
            record["id"],
            record["text"],
            record["sender"],
            dt.datetime.fromisoformat(when) if when else None,
            record["metadata"],
        ),
        dt.datetime.fromisoformat(record["at"]),
    )


def records_of_turn(turn: Turn) -> list[Record]:
    """The shortest way to where a turn is."""
    records: list[Record] = [
        {
            "type": "begun",
            "turn": turn.id,
            "channel": turn.channel,
            "key": turn.key,
            "ids": list(turn.ids),
            "session": turn.session_id,
            "attempts": turn.attempts,
        }
    ]
    if turn.parts is not None:
        records.append(
            {
                "type": "answered",
                "parts": list(turn.parts),
                "push": turn.push,
                "entry": turn.entry_id,
                "error": turn.error,
            }
        )
    if turn.cancelled:
        records.append({"type": "cancelled"})
    records += ({"type": "unsure", "part": part, "reason": reason} for part, reason in turn.unsure)
    if turn.settled:
        records.append({"type": "sent", "part": turn.settled - 1})
    if turn.sending:
        records.append({"type": "sending", "part": turn.settled})
    return [{**record, "turn": turn.id} for record in records]

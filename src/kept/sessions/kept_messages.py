"""Choice of the messages that a compaction by hand keeps. One by an agent is planned in `context.compaction_plan`."""

from __future__ import annotations

from kept.sessions.entries import Entry, Message
from kept.sessions.transcript import Position, Transcript


def find_first_kept(transcript: Transcript, end: Position, keep_messages: int) -> str | None:
    """Return the id of the nearest question at or before the last ``keep_messages`` messages.

    Starting at a question keeps tool calls and answers together with what they answer. Without such a question, all
    messages are kept. Return None if there are none.
    """
    read_messages = keep_messages
    while True:
        lines = transcript.tail(read_messages, end)
        entries = [line.content for line in lines if isinstance(line.content, Entry)]
        messages = [(entry.id, entry.body) for entry in entries if isinstance(entry.body, Message)]
        candidates = messages[: max(0, len(messages) - keep_messages + 1)]
        for entry_id, message in reversed(candidates):
            if message.role == "user":
                return entry_id
        if len(messages) < read_messages:
            return messages[0][0] if messages else None
        read_messages *= 2

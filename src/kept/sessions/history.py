"""What was said in a group since the last reply: in memory only, and bounded both ways."""

from __future__ import annotations

import datetime as dt
import threading
from collections import OrderedDict, deque

from kept.values import frozen

MAX_CONVERSATIONS = 1_000
MAX_MESSAGES = 50
HEADING = "[Chat messages since your last reply - for context]"
CURRENT_HEADING = "[Current message - respond to this]"


@frozen
class Heard:
    """A message that was overheard rather than addressed to the agent."""

    sender: str
    text: str
    timestamp: dt.datetime | None = None

    def __str__(self) -> str:
        when = f"[{self.timestamp:%H:%M}] " if self.timestamp else ""
        # A message of several lines must not look like several messages.
        return f"{when}{' '.join(self.sender.split())}: " + "\n  ".join(self.text.splitlines())


class History:
    """Buffers by conversation. The one that was silent for longest is forgotten first. Safe between threads."""

    def __init__(self, *, max_conversations: int = MAX_CONVERSATIONS, max_messages: int = MAX_MESSAGES) -> None:
        self._max_conversations = max_conversations
        self._max_messages = max_messages
        self._buffers: OrderedDict[str, deque[Heard]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._buffers)

    def add(self, key: str, heard: Heard) -> None:
        if self._max_messages <= 0 or self._max_conversations <= 0:
            return
        with self._lock:
            self._buffers.setdefault(key, deque(maxlen=self._max_messages)).append(heard)
            self._buffers.move_to_end(key)
            while len(self._buffers) > self._max_conversations:
                self._buffers.popitem(last=False)

    def messages(self, key: str) -> tuple[Heard, ...]:
        with self._lock:
            return tuple(self._buffers.get(key, ()))

    def clear(self, key: str) -> None:
        """After a reply: what comes next is counted from here."""
        with self._lock:
            self._buffers.pop(key, None)

    def render(self, key: str, current: str) -> str:
        """The current message, below what was said since the last reply where there was anything."""
        heard = self.messages(key)
        if not heard:
            return current
        return "\n".join([HEADING, *map(str, heard), "", CURRENT_HEADING, current])

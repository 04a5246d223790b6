"""Messages that wait for an answer: the queue of one conversation, and the limits of all queues together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from kept.config import ResponderSettings
from kept.errors import ConversationFull, QueueFull
from kept.responder.commands import Command, find_command
from kept.responder.inbox import AcceptedMessage, AnswerRun
from kept.values import frozen


@frozen
class QueuedMessage:
    """Message in a queue, with the command that it gives, if any."""

    message: AcceptedMessage
    command: Command | None


class ConversationQueue:
    """Messages and interrupted runs of one conversation.

    People send a thought in several messages. The queue is debounced: the messages that arrive until there has been a
    pause of ``debounce_s`` are answered together. Three things end the wait early: a command, since it is complete;
    ``hurry``, when the gateway starts or stops; and an interrupted run, which has to be answered first.
    """

    def __init__(self, key: str, *, debounce_s: float) -> None:
        self.key = key
        self.waiting: deque[QueuedMessage] = deque()
        self.interrupted: deque[AnswerRun] = deque()
        """Runs that the last process did not finish, oldest first. They precede all waiting messages."""
        self.current: AnswerRun | None = None
        self.answering: asyncio.Task[AnswerRun] | None = None
        """Task that answers ``current``. Cancelled if the answer is no longer wanted."""
        self._debounce_s = debounce_s
        self._settled_at = 0.0
        """Time of the event loop at which the debounce of the last message ends."""
        self._hurry = asyncio.Event()

    def add(self, message: AcceptedMessage) -> QueuedMessage:
        queued = QueuedMessage(message, find_command(message.inbound))
        self.waiting.append(queued)
        self._settled_at = asyncio.get_running_loop().time() + self._debounce_s
        if queued.command is not None:
            self.hurry()
        return queued

    def remove(self, message: AcceptedMessage) -> bool:
        """Remove a waiting message. Return False if it is not waiting."""
        for queued in self.waiting:
            if queued.message == message:
                self.waiting.remove(queued)
                return True
        return False

    def hurry(self) -> None:
        """End the debounce now."""
        self._hurry.set()

    async def settle(self) -> None:
        """Return when the debounce is over.

        Each message that arrives meanwhile moves the end, so the time left is computed again after every wait.
        """
        loop = asyncio.get_running_loop()
        while not self.interrupted and (left_s := self._settled_at - loop.time()) > 0 and not self._hurry.is_set():
            try:
                await asyncio.wait_for(self._hurry.wait(), left_s)
            except TimeoutError:
                pass

    def take(self) -> Sequence[QueuedMessage]:
        """Remove and return the messages of the next run: a command alone, or all messages up to the next command."""
        batch = [self.waiting.popleft()]
        while self.waiting and batch[0].command is None and self.waiting[0].command is None:
            batch.append(self.waiting.popleft())
        # A command that still waits keeps the hurry up: it must not wait for the debounce of later messages.
        if all(queued.command is None for queued in self.waiting):
            self._hurry.clear()
        return batch


class QueueLimits:
    """Number of messages that wait for an answer, in total and by conversation."""

    def __init__(self, settings: ResponderSettings) -> None:
        self.max_total = settings.max_queued
        self.max_per_conversation = settings.max_queued_per_conversation
        self.total = 0
        self.closed = False
        """True when the gateway accepts no more messages."""
        self._by_key: dict[str, int] = {}
        self._released = asyncio.Event()

    def check(self, key: str) -> None:
        """Raise QueueFull or ConversationFull if no further message of a conversation is accepted."""
        if self.closed:
            raise QueueFull("The gateway is shutting down.")
        if self._by_key.get(key, 0) >= self.max_per_conversation:
            raise ConversationFull("Too many messages of this conversation wait for an answer.")
        if self.total >= self.max_total:
            raise QueueFull("Too many messages wait for an answer.")

    def reserve(self, key: str) -> None:
        """Count one more message. Call `check` first, unless the message was accepted before a restart."""
        self._by_key[key] = self._by_key.get(key, 0) + 1
        self.total += 1

    def release(self, key: str, count: int = 1) -> None:
        left = self._by_key.get(key, 0) - count
        if left > 0:
            self._by_key[key] = left
        else:
            self._by_key.pop(key, None)
        self.total -= count
        self._released.set()
        self._released = asyncio.Event()

    async def wait_for_space(self, key: str) -> None:
        """Return when `check` passes."""
        while True:
            released = self._released
            try:
                self.check(key)
            except QueueFull:
                await released.wait()
            else:
                return

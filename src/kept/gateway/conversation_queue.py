"""State of conversations in memory: the queue of each and the limits of all, events of an answer, group messages."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kept.agent.events import AgentEvent, Notice, Reply, ToolEnded
from kept.base.remote_errors import ConversationFull, QueueFull
from kept.base.values import frozen
from kept.config.gateway_settings import ResponderSettings
from kept.gateway.channel import Channel
from kept.gateway.dispatcher import Command, find_command
from kept.gateway.inbox import AcceptedMessage, AnswerRun
from kept.sessions.session_key import SessionKey

T = TypeVar("T")


@dataclass(eq=False)
class ConversationQueue:
    """Messages and interrupted runs of one conversation.

    People send a thought in several messages. The queue is debounced: the messages that arrive until there has been a
    pause, whose length the channel sets, are answered together. Three things end the wait early: a command, since it is
    complete; ``hurry``, when the gateway starts or stops; and an interrupted run, which has to be answered first.
    """

    key: str
    chat: SessionKey
    channel: Channel
    waiting: deque[AcceptedMessage] = field(default_factory=deque)
    interrupted: deque[AnswerRun] = field(default_factory=deque)
    """Runs that the last process did not finish, oldest first. They precede all waiting messages."""
    current: AnswerRun | None = None
    answering: asyncio.Task[AnswerRun] | None = None
    """Task that answers ``current``. Cancelled if the answer is no longer wanted."""
    _settled_at: float = 0.0
    """Time of the event loop at which the debounce of the last message ends."""
    _hurry: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, message: AcceptedMessage) -> None:
        self.waiting.append(message)
        self._settled_at = asyncio.get_running_loop().time() + self.channel.debounce_ms / 1000
        if find_command(message) is not None:
            self.hurry()

    def hurry(self) -> None:
        self._hurry.set()

    async def wait_for_debounce(self) -> None:
        """Return when the debounce is over.

        Each message that arrives meanwhile moves the end, so the time left is computed again after every wait.
        """
        loop = asyncio.get_running_loop()
        while not self.interrupted and (left_s := self._settled_at - loop.time()) > 0 and not self._hurry.is_set():
            try:
                await asyncio.wait_for(self._hurry.wait(), left_s)
            except TimeoutError:
                pass

    def take(self) -> list[AcceptedMessage]:
        """Remove and return the messages of the next run: a command alone, or all messages up to the next command."""
        batch = [self.waiting.popleft()]
        if find_command(batch[0]) is None:
            while self.waiting and find_command(self.waiting[0]) is None:
                batch.append(self.waiting.popleft())
        # A command that still waits keeps the hurry up: it must not wait for the debounce of later messages.
        if all(find_command(message) is None for message in self.waiting):
            self._hurry.clear()
        return batch


@dataclass
class AnswerSlot:
    """Place among the answers that are being written at the same time. An answer that waits for a person leaves it."""

    _slots: asyncio.Semaphore
    _is_held: bool = False

    async def take(self) -> None:
        if not self._is_held:
            await self._slots.acquire()
            self._is_held = True

    def leave(self) -> None:
        if self._is_held:
            self._is_held = False
            self._slots.release()


class QueueLimits:
    """Number of messages that wait for an answer, in total and by conversation."""

    def __init__(self, settings: ResponderSettings) -> None:
        self.max_total = settings.max_queued
        self.max_per_conversation = max(1, settings.max_queued // 5)
        self.closed = False
        """True when the gateway accepts no more messages."""
        self._by_key: Counter[str] = Counter()
        self._released = asyncio.Event()

    def check(self, key: str) -> None:
        """Raise QueueFull or ConversationFull if no further message of a conversation is accepted."""
        if self.closed:
            raise QueueFull("The gateway is shutting down.")
        if self._by_key[key] >= self.max_per_conversation:
            raise ConversationFull("Too many messages of this conversation wait for an answer.")
        if self._by_key.total() >= self.max_total:
            raise QueueFull("Too many messages wait for an answer.")

    def count(self) -> int:
        return self._by_key.total()

    def reserve(self, key: str) -> None:
        """Count one more message. Call `check` first, unless the message was accepted before a restart."""
        self._by_key[key] += 1

    def release(self, key: str, count: int = 1) -> None:
        self._by_key[key] -= count
        if self._by_key[key] <= 0:
            del self._by_key[key]
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


@dataclass
class EventReplay(Generic[T]):
    """Events of one answer. Every follower gets all of them, however late it comes."""

    events: list[T] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set and replaced at every change, so that each follower waits for the change after the last one it saw."""

    def add(self, event: T) -> None:
        self.events.append(event)
        self._changed.set()
        self._changed = asyncio.Event()

    def end(self) -> None:
        self.ended.set()
        self._changed.set()

    async def follow(self, *, heartbeat_s: float | None = None) -> AsyncIterator[T | None]:
        """Yield all events from the first until the end, and None after ``heartbeat_s`` without one."""
        seen = 0
        while True:
            while seen < len(self.events):
                seen += 1
                yield self.events[seen - 1]
            if self.ended.is_set():
                return
            try:
                await asyncio.wait_for(self._changed.wait(), heartbeat_s)
            except TimeoutError:
                yield None


@frozen
class AnswerJob:
    """A run that is to be answered."""

    run: AnswerRun
    messages: Sequence[AcceptedMessage]
    command: Command | None
    """Command that the only message gives."""
    channel: Channel
    replay: EventReplay[AgentEvent]
    """Events of the run, for clients that follow its last message."""
    slot: AnswerSlot
    is_heartbeat: bool

    def details(self, reply: Reply) -> dict[str, Any]:
        """Return what clients are told about the answer besides its text."""
        events = self.replay.events
        details = {
            "notices": [event.text for event in events if isinstance(event, Notice)],
            "tools": [event.name for event in events if isinstance(event, ToolEnded)],
            "usage": {"inputTokens": reply.tokens_in, "outputTokens": reply.tokens_out},
        }
        return {**details, "context": reply.context} if reply.context else details

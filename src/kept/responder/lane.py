"""The messages of one conversation that wait to be answered, and when enough of them are there."""

from __future__ import annotations

import asyncio
from collections import deque

from kept.responder.commands import find_command
from kept.responder.letters import AcceptedMessage, AnswerRun


class ConversationQueue:
    """``unfinished`` is what a crash broke off: it comes first."""

    def __init__(self, key: str, *, debounce_s: float) -> None:
        self.key = key
        self.waiting: deque[AcceptedMessage] = deque()
        self.unfinished: deque[AnswerRun] = deque()
        self.answering: asyncio.Task[AnswerRun] | None = None
        self.current: AnswerRun | None = None
        self.runner: asyncio.Task[None] | None = None
        self._debounce_s = debounce_s
        self._quiet_at = 0.0
        self._hurry = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self.waiting or self.unfinished)

    def add(self, letter: AcceptedMessage) -> None:
        self.waiting.append(letter)
        self._quiet_at = asyncio.get_running_loop().time() + self._debounce_s
        if _is_command(letter):
            self.hurry()  # nobody types on after a command

    def hurry(self) -> None:
        """Waits for no more of a message."""
        self._hurry.set()

    async def settle(self) -> None:
        """Returns when nothing was added for as long as a person takes to type on."""
        loop = asyncio.get_running_loop()
        while not self.unfinished and (left := self._quiet_at - loop.time()) > 0 and not self._hurry.is_set():
            try:
                await asyncio.wait_for(self._hurry.wait(), left)
            except TimeoutError:
                pass

    def take(self) -> list[AcceptedMessage]:
        """The messages of the next turn. A command is always one by itself."""
        taken = [self.waiting.popleft()]
        while self.waiting and not _is_command(taken[0]) and not _is_command(self.waiting[0]):
            taken.append(self.waiting.popleft())
        if not any(_is_command(letter) for letter in self.waiting):
            self._hurry.clear()
        return taken


def _is_command(letter: AcceptedMessage) -> bool:
    return find_command(letter.message) is not None

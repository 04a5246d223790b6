"""Answering one turn: the agent is asked, those who watch see it write, and the reply goes into the inbox."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

from kept.agent.events import AgentEvent, GroupLine, Reply
from kept.errors import KeptError
from kept.responder.answerer import Dispatcher
from kept.responder.inbox import Inbox
from kept.responder.letters import AcceptedMessage, AnswerRun
from kept.responder.live import EventReplay
from kept.responder.outlet import Channel
from kept.responder.split import split_reply
from kept.responder.writer import InboxWriter
from kept.sessions.history import Heard, History

MAX_ATTEMPTS = 25
"""A message that takes the program down with it, again and again, is given up in the end."""
_TYPING_S = 4.0

log = logging.getLogger(__name__)


class AnswerRunner:
    def __init__(self, answerer: Dispatcher, inbox: Inbox, writer: InboxWriter, *, max_history: int) -> None:
        self._answerer = answerer
        self._inbox = inbox
        self._writer = writer
        self._max_history = max_history
        self._history = History()
        self._live: dict[tuple[str, str], EventReplay] = {}
        self._after: set[asyncio.Task[None]] = set()

    # watching

    def open(self, letter: AcceptedMessage) -> None:
        self._live[letter.channel, letter.id] = EventReplay()

    def end(self, letters: list[AcceptedMessage]) -> None:
        for letter in letters:
            live = self._live.pop((letter.channel, letter.id), None)
            if live is not None:
                live.end()

    def follow(self, channel: str, message_id: str) -> AsyncIterator[AgentEvent]:
        return (self._live.get((channel, message_id)) or _nothing_to_see()).follow()

    def hear(self, key: str, line: GroupLine) -> None:
        self._history.add(key, Heard(line.sender, line.text, line.timestamp))

    # answering

    async def answer(self, turn: AnswerRun, outlet: Channel) -> AnswerRun:
        letters = self._inbox.letters_of(turn)
        typing = asyncio.create_task(_keep_typing(outlet, letters[-1]))
        try:
            reply, error = await self._ask(turn, letters)
        finally:
            typing.cancel()
        parts = [] if reply.silent else split_reply(reply.text, outlet.limit, measure=outlet.measure)
        entry_id = reply.entry_id or None
        return await self._writer.surely(
            lambda: self._inbox.answer(turn, parts, push=outlet.pushes, entry_id=entry_id, error=error)
        )

    async def _ask(self, turn: AnswerRun, letters: list[AcceptedMessage]) -> tuple[Reply, str | None]:
        """The reply, and what went wrong where it says only that."""
        if turn.attempts > MAX_ATTEMPTS:
            return Reply("This message could not be answered.", ""), "gave_up"
        try:
            return await self._reply(turn, letters), None
        except KeptError as exc:
            log.warning("%s: a message could not be answered (%s)", turn.channel, exc.code)
            return Reply(f"That did not work: {exc.message} {exc.hint}".strip(), ""), exc.code
        except Exception:
            log.exception("%s: a message could not be answered", turn.channel)
            return Reply("Something went wrong that should not. The log of the gateway says what.", ""), "internal"

    async def _reply(self, turn: AnswerRun, letters: list[AcceptedMessage]) -> Reply:
        """Returns as soon as there is a reply. What the agent does after it, such as a compaction, goes on."""
        replied: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._consume(turn, letters, replied))
        either: list[asyncio.Future[Any]] = [task, replied]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        if not replied.done():
            await task
            return Reply("", "", silent=True)
        self._after.add(task)
        task.add_done_callback(self._after.discard)
        return replied.result()

    async def _consume(self, turn: AnswerRun, letters: list[AcceptedMessage], replied: asyncio.Future[Reply]) -> None:
        live = self._live.get((turn.channel, letters[-1].id))
        messages = [letter.message for letter in letters]
        try:
            async for event in self._answerer.answer(turn.session_id, messages, group=self._overheard(turn.key)):
                if isinstance(event, Reply):
                    replied.set_result(event)
                elif live is not None:
                    live.add(event)
        except Exception:
            if not replied.done():
                raise
            log.exception("%s: what follows a reply went wrong", turn.channel)

    async def finish(self, timeout_s: float) -> None:
        """Waits for what agents still do after their replies. What is cut short is done again when it is needed."""
        if self._after:
            _, left = await asyncio.wait(self._after, timeout=timeout_s)
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)

    def end_all(self) -> None:
        """Nobody need wait any longer: what is not answered now is answered by the next process."""
        for live in self._live.values():
            live.end()
        self._live.clear()

    def _overheard(self, key: str) -> list[GroupLine]:
        """What was said in a group since the last turn. What is said while this one is answered belongs to the next."""
        heard = self._history.messages(key)
        self._history.clear(key)
        lines = [GroupLine(one.sender, one.text, one.timestamp) for one in heard if one.timestamp]
        return lines[max(0, len(lines) - self._max_history) :]


def _nothing_to_see() -> EventReplay:
    live = EventReplay()
    live.end()
    return live


async def _keep_typing(outlet: Channel, letter: AcceptedMessage) -> None:
    to: Mapping[str, Any] = letter.message.metadata or {}
    while True:
        await outlet.show_typing(to)
        await asyncio.sleep(_TYPING_S)

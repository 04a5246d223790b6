"""Responder: takes messages of any channel, answers each conversation in order, and delivers the replies.

    accept → inbox (on disk) → lane of the conversation (debounce) → one of a few slots → answer → inbox → delivery

A message that was accepted is answered, by this process or by the next one. Every step is on disk before the one that
follows from it, and asking the agent again with the same messages gives the same reply: so a kill anywhere repeats
nothing that can be seen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping

from kept.agent.events import AgentEvent, GroupLine, Inbound
from kept.config import ResponderSettings
from kept.errors import KeptError, MessageConflict, MessageNotFound
from kept.responder.answerer import Dispatcher
from kept.responder.commands import is_stop
from kept.responder.delivery import LONGEST_WAIT_S, deliver
from kept.responder.inbox import Inbox, check_same
from kept.responder.lane import ConversationQueue
from kept.responder.letters import AcceptedMessage, AnswerRun
from kept.responder.outlet import Channel
from kept.responder.room import QueueLimits
from kept.responder.turns import AnswerRunner
from kept.responder.writer import InboxWriter
from kept.sessions.session_key import SessionKey, parse_key

log = logging.getLogger(__name__)


class Responder:
    """Belongs to one event loop. ``outlets`` are the channels by name."""

    def __init__(
        self, answerer: Dispatcher, inbox: Inbox, settings: ResponderSettings, outlets: Mapping[str, Channel]
    ) -> None:
        self.inbox = inbox
        self.room = QueueLimits(settings)
        self._answerer = answerer
        self._outlets = outlets
        self._writer = InboxWriter()
        self._turns = AnswerRunner(answerer, inbox, self._writer, max_history=settings.max_history_messages)
        self._slots = asyncio.Semaphore(settings.max_concurrent)
        self._lanes: dict[str, ConversationQueue] = {}
        self._arriving: dict[tuple[str, str], asyncio.Future[AcceptedMessage]] = {}
        self._dropping: set[asyncio.Task[None]] = set()

    # beginning and ending

    async def start(self) -> None:
        """Goes on with whatever was accepted and is not finished. What came by a channel that is not served now waits
        for it."""
        for turn in self.inbox.unfinished():
            if turn.channel in self._outlets:
                for letter in self.inbox.letters_of(turn):
                    self._expect(letter)
                self._lane(turn.key, turn.channel).unfinished.append(turn)
        for letter in self.inbox.waiting():
            if letter.channel in self._outlets:
                self._expect(letter)
                self._lane(letter.key, letter.channel).add(letter)
        for lane in list(self._lanes.values()):
            lane.hurry()
            self._run(lane)

    def _expect(self, letter: AcceptedMessage) -> None:
        self.room.take(letter.key)
        self._turns.open(letter)

    async def drain(self, timeout_s: float, *, at_once: asyncio.Event | None = None) -> bool:
        """Accepts no more, and finishes what was accepted, for so long or until somebody wants it to end at once. What
        is left, the next start goes on with."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        self.room.closed = True
        if self._arriving:
            await asyncio.wait(self._arriving.values())
        for lane in self._lanes.values():
            lane.hurry()
        runners = {lane.runner for lane in self._lanes.values() if lane.runner}
        left = await _wait_until(deadline, runners, at_once or asyncio.Event())
        for runner in left:
            runner.cancel()
        ending = [*left, *self._dropping]
        if ending:
            await asyncio.wait(ending)
        self._turns.end_all()
        await self._turns.finish(0.0 if left else max(0.0, deadline - loop.time()))
        await self._answerer.close()
        self._writer.close()
        return not left

    # taking messages

    async def accept(self, key: SessionKey, message: Inbound) -> AcceptedMessage:
        """Returns when the message is on disk. One that is there already is not taken twice."""
        name = (key.channel, message.id)
        known = self.inbox.find(*name)
        if known is None and name in self._arriving:
            known = await asyncio.shield(self._arriving[name])
        if known is not None:
            return check_same(known, str(key), message.text)
        self.room.require(str(key))
        self.room.take(str(key))
        arriving = asyncio.ensure_future(self._writer.once(lambda: self.inbox.receive(key, message)))
        self._arriving[name] = arriving
        arriving.add_done_callback(lambda done: self._arrived(name, str(key), done))
        return await asyncio.shield(arriving)

    def _arrived(self, name: tuple[str, str], key: str, arriving: asyncio.Future[AcceptedMessage]) -> None:
        """Also where whoever brought the message has gone: it is on disk, so it is answered."""
        del self._arriving[name]
        if arriving.cancelled() or arriving.exception() is not None:
            self.room.give_back(key)
            return
        letter = arriving.result()
        self._turns.open(letter)
        lane = self._lane(key, letter.channel)
        lane.add(letter)
        if is_stop(letter.message):
            self._stop_before(lane, letter)
        self._run(lane)

    def hear(self, key: SessionKey, line: GroupLine) -> None:
        """Something said in a group that wants no answer, and may explain the next question."""
        self._turns.hear(str(key), line)

    # looking

    def find(self, channel: str, message_id: str) -> tuple[AcceptedMessage, AnswerRun | None]:
        letter = self.inbox.find(channel, message_id)
        if letter is None:
            raise MessageNotFound(f"There is no message '{message_id}'.")
        return letter, self.inbox.turn_of(letter)

    def follow(self, channel: str, message_id: str) -> AsyncIterator[AgentEvent]:
        """What is written in answer to a message, from its beginning, until there is a reply or there will be none.
        Of messages that are answered together, whoever follows the last one sees it."""
        return self._turns.follow(channel, message_id)

    async def wait(self, channel: str, message_id: str) -> tuple[AcceptedMessage, AnswerRun | None]:
        """The message, once there is nothing to wait for."""
        async for _ in self.follow(channel, message_id):
            pass
        return self.find(channel, message_id)

    def status_lines(self) -> list[str]:
        """For whoever asks how it is going."""
        lines = [f"Waiting for an answer: {self.room.taken} of at most {self.room.limit} messages."]
        unsure = len(self.inbox.unsure())
        if unsure:
            lines.append(f"Replies that may not have arrived, and are not sent again: {unsure}.")
        return lines

    # cancelling

    async def cancel(self, channel: str, message_id: str) -> tuple[AcceptedMessage, AnswerRun | None]:
        """Nobody wants the answer any more. Messages that are answered together are cancelled together."""
        letter, turn = self.find(channel, message_id)
        lane = self._lanes.get(letter.key)
        if lane is not None and turn is None and letter in lane.waiting:
            lane.waiting.remove(letter)
            await self._drop(letter)
        elif lane is not None and turn is not None and lane.current == turn and lane.answering:
            lane.answering.cancel()
        elif turn is None or not turn.cancelled:
            raise MessageConflict("It can no longer be cancelled.", hint="Ask for its state.")
        return await self.wait(channel, message_id)

    def _stop_before(self, lane: ConversationQueue, stop: AcceptedMessage) -> None:
        """/stop overtakes what was said before it."""
        for letter in [one for one in lane.waiting if one is not stop]:
            lane.waiting.remove(letter)
            task = asyncio.create_task(self._drop(letter))
            self._dropping.add(task)
            task.add_done_callback(self._dropping.discard)
        if lane.answering is not None:
            lane.answering.cancel()

    async def _drop(self, letter: AcceptedMessage) -> None:
        turn = await self._writer.surely(lambda: self.inbox.begin([letter], ""))
        await self._writer.surely(lambda: self.inbox.cancel(turn))
        self._finish([letter])

    # one turn of a conversation after the other

    def _lane(self, key: str, channel: str) -> ConversationQueue:
        if key not in self._lanes:
            self._lanes[key] = ConversationQueue(key, debounce_s=self._outlets[channel].debounce_ms / 1000)
        return self._lanes[key]

    def _run(self, lane: ConversationQueue) -> None:
        if self.room.closed:
            lane.hurry()
        if lane.runner is None:
            lane.runner = asyncio.create_task(self._run_lane(lane))

    async def _run_lane(self, lane: ConversationQueue) -> None:
        try:
            while lane:
                await lane.settle()
                async with self._slots:
                    turn = await self._next_turn(lane)
                if turn is not None:
                    await self._deliver(turn)
        except Exception:
            log.exception("a conversation came to a halt; what is left of it is answered after the next start")
            self._let_go(lane)
        finally:
            lane.runner = None
            self._lanes.pop(lane.key, None)

    def _let_go(self, lane: ConversationQueue) -> None:
        """Nobody need wait here for what only the next start answers."""
        begun = (turn for turn in self.inbox.unfinished() if turn.key == lane.key)
        self._turns.end([*lane.waiting, *(letter for turn in begun for letter in self.inbox.letters_of(turn))])

    async def _next_turn(self, lane: ConversationQueue) -> AnswerRun | None:
        """Answers what comes next. None where it was taken back while it waited for its turn."""
        turn = await self._begin(lane)
        if turn is None or turn.parts is not None:
            return turn
        lane.current = turn
        lane.answering = asyncio.create_task(self._turns.answer(turn, self._outlets[turn.channel]))
        try:
            await asyncio.wait([lane.answering])
        except asyncio.CancelledError:  # the program ends; the next one goes on with this turn
            lane.answering.cancel()
            await asyncio.wait([lane.answering])
            raise
        finally:
            answering, lane.answering, lane.current = lane.answering, None, None
        if answering.cancelled():
            return await self._writer.surely(lambda: self.inbox.cancel(turn))
        return answering.result()

    async def _begin(self, lane: ConversationQueue) -> AnswerRun | None:
        if lane.unfinished:
            broken_off = lane.unfinished.popleft()
            if broken_off.parts is not None:
                return broken_off
            return await self._writer.surely(lambda: self.inbox.begin_again(broken_off))
        session_id = await self._session_of(lane)
        if not lane.waiting:
            return None
        letters = lane.take()
        return await self._writer.surely(lambda: self.inbox.begin(letters, session_id))

    async def _session_of(self, lane: ConversationQueue) -> str:
        wait_s = 1.0
        while True:
            try:
                return await self._answerer.session_of(parse_key(lane.key, agent_id=""))
            except KeptError as exc:
                log.error("a session cannot be opened; trying again (%s)", exc.message)
                await asyncio.sleep(wait_s)
                wait_s = min(LONGEST_WAIT_S, wait_s * 2)

    async def _deliver(self, turn: AnswerRun) -> None:
        letters = self.inbox.letters_of(turn)
        self._turns.end(letters)
        if not turn.finished:
            to = letters[-1].message.metadata or {}
            await deliver(turn, self._outlets[turn.channel], to, self._mark)
        self._finish(letters)

    async def _mark(self, turn: AnswerRun, what: str, *, reason: str | None = None) -> AnswerRun:
        return await self._writer.surely(lambda: self.inbox.mark(turn, what, reason=reason))

    def _finish(self, letters: list[AcceptedMessage]) -> None:
        self._turns.end(letters)
        self.room.give_back(letters[0].key, len(letters))


async def _wait_until(
    deadline: float, tasks: set[asyncio.Task[None]], at_once: asyncio.Event
) -> set[asyncio.Task[None]]:
    """The tasks that are not done by then."""
    loop = asyncio.get_running_loop()
    hurried = asyncio.create_task(at_once.wait())
    while tasks and not at_once.is_set() and (left_s := deadline - loop.time()) > 0:
        await asyncio.wait([*tasks, hurried], timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        tasks = {task for task in tasks if not task.done()}
    hurried.cancel()
    return tasks

"""Runs one answer: asks the dispatcher, publishes the events as they come, and records the reply in the inbox."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from kept.agent.events import AgentEvent, GroupLine, Reply
from kept.errors import KeptError
from kept.responder.channel import Channel
from kept.responder.commands import Command
from kept.responder.dispatcher import Dispatcher
from kept.responder.inbox import AcceptedMessage, AnswerRun, Inbox, InboxWriter
from kept.responder.reply_split import split_reply
from kept.responder.timing import ResponderTiming
from kept.values import frozen

log = logging.getLogger(__name__)


@frozen
class AnswerJob:
    """A run that is to be answered."""

    run: AnswerRun
    messages: Sequence[AcceptedMessage]
    command: Command | None
    """Command that the only message gives."""
    channel: Channel
    replay: EventReplay | None
    """Events of the run, for clients that follow its last message."""


class AnswerRunner:
    """Answers runs. ``groups`` has the messages of each group since the last reply there."""

    def __init__(
        self, dispatcher: Dispatcher, inbox: Inbox, writer: InboxWriter, groups: GroupHistory, timing: ResponderTiming
    ) -> None:
        self._dispatcher = dispatcher
        self._inbox = inbox
        self._writer = writer
        self._groups = groups
        self._timing = timing
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, job: AnswerJob) -> AnswerRun:
        """Return the run with its reply. A failure becomes a reply too, with an error code."""
        channel = job.channel
        typing = asyncio.create_task(self._keep_typing(job)) if channel.pushes else None
        try:
            reply, error = await self._ask(job)
        finally:
            if typing:
                typing.cancel()
        parts = [] if reply.silent else split_reply(reply.text, channel.limit, measure=channel.measure)
        entry_id = reply.entry_id or None
        return await self._writer.write_until_done(
            lambda: self._inbox.answer(job.run, parts, push=channel.pushes, entry_id=entry_id, error=error)
        )

    async def _ask(self, job: AnswerJob) -> tuple[Reply, str | None]:
        """Return the reply, and an error code if it only reports a failure.

        This returns at the Reply event. The agent may go on after it, with a compaction for instance: the task that
        consumes its events stays in ``_tasks`` until it is done.
        """
        if job.run.attempts > self._timing.max_attempts:
            return Reply("This message could not be answered.", ""), "gave_up"
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._consume(job, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await reply, None
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        except KeptError as exc:
            log.warning("%s: a message could not be answered (%s)", job.run.channel, exc.code)
            return Reply(f"That did not work: {exc.message} {exc.hint}".strip(), ""), exc.code
        except Exception:
            log.exception("%s: a message could not be answered", job.run.channel)
            return Reply("Unexpected error. The log of the gateway has the details.", ""), "internal"

    async def _consume(self, job: AnswerJob, reply: asyncio.Future[Reply]) -> None:
        """Publish the events of an answer, and set ``reply`` to the reply or the error."""
        run, dispatcher = job.run, self._dispatcher
        inbound = [message.inbound for message in job.messages]
        group = self._groups.take(run.key)
        try:
            async with aclosing(dispatcher.answer(run.session_id, inbound, command=job.command, group=group)) as events:
                async for event in events:
                    if not isinstance(event, Reply):
                        if job.replay is not None:
                            job.replay.add(event)
                    elif not reply.done():  # it is done if the caller was cancelled
                        reply.set_result(event)
            if job.command is None:
                dispatcher.cadence.add(len(inbound) + 1)
            if not reply.done():
                reply.set_result(Reply("", "", silent=True))
        except Exception as exc:
            if reply.done():
                log.exception("%s: the work after a reply failed", run.channel)
            else:
                reply.set_exception(exc)

    async def _keep_typing(self, job: AnswerJob) -> None:
        to = job.messages[-1].inbound.metadata or {}
        while True:
            await job.channel.show_typing(to)
            await asyncio.sleep(self._timing.typing_s)

    async def finish(self, timeout_s: float) -> None:
        """Wait for agents that still work after their replies. Work that is cut short is repeated when it is needed."""
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=timeout_s)
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)


class EventReplay:
    """Events of one answer. Every follower gets all of them, however late it comes."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self._events: list[AgentEvent] = []
        self._changed = asyncio.Event()
        """Set and replaced at every change, so that each follower waits for the change after the last one it saw."""

    def add(self, event: AgentEvent) -> None:
        self._events.append(event)
        self._changed.set()
        self._changed = asyncio.Event()

    def end(self) -> None:
        self.ended.set()
        self._changed.set()

    async def follow(self, *, heartbeat_s: float | None = None) -> AsyncIterator[AgentEvent | None]:
        """Yield all events from the first until the end, and None after ``heartbeat_s`` without one."""
        seen = 0
        while True:
            while seen < len(self._events):
                seen += 1
                yield self._events[seen - 1]
            if self.ended.is_set():
                return
            try:
                await asyncio.wait_for(self._changed.wait(), heartbeat_s)
            except TimeoutError:
                yield None


class GroupHistory:
    """Messages in groups since the last reply that were not addressed to the agent. In memory only, and bounded.

    When there are too many conversations, the one that has been silent the longest is dropped.
    """

    def __init__(self, *, max_messages: int, max_conversations: int = 1_000) -> None:
        self._max_messages = max_messages
        self._max_conversations = max_conversations
        self._lines: OrderedDict[str, deque[GroupLine]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, key: str, line: GroupLine) -> None:
        if self._max_messages <= 0:
            return
        self._lines.setdefault(key, deque(maxlen=self._max_messages)).append(line)
        self._lines.move_to_end(key)
        if len(self._lines) > self._max_conversations:
            self._lines.popitem(last=False)

    def take(self, key: str) -> Sequence[GroupLine]:
        """Remove and return the messages of a group. Later ones belong to the next answer."""
        return self._lines.pop(key, ())

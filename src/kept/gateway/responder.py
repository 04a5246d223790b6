"""Responder: accepts messages of any channel, answers each conversation in order, and delivers the replies.

    accept → inbox (on disk) → queue of the conversation (debounce) → free slot → answer → inbox → delivery

An accepted message is answered, by this process or by the next. Every step is on disk before the step that depends on
it, and the agent gives the same reply when it is asked again with the same messages. So a kill at any point repeats
nothing that a person can see.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

from kept.agent.events import (
    NOBODY,
    AgentEvent,
    ApprovalAsked,
    ApprovalDecided,
    GroupLine,
    Inbound,
    Reply,
    ReplyDelta,
)
from kept.base.clock import Backoff
from kept.base.limits import utf8_safe
from kept.base.remote_errors import MessageConflict, MessageNotFound
from kept.config.gateway_settings import ResponderSettings
from kept.errors import KeptError, WriteFailed
from kept.forgetting.forgetter import running_inboxes
from kept.gateway.channel import (
    MAX_PARTS,
    TOO_LONG,
    Channel,
    ResponderTiming,
    channel_name,
    deliver,
    explain_failure,
    quiet_heartbeat,
    split_reply,
)
from kept.gateway.conversation_queue import AnswerJob, AnswerSlot, ConversationQueue, EventReplay, QueueLimits
from kept.gateway.dispatcher import APPROVAL, CommandCall, Dispatcher, find_command
from kept.gateway.inbox import AcceptedMessage, AnswerRun, Inbox, Name
from kept.sessions.entries import HEARTBEAT
from kept.sessions.session_key import SessionKey

_MAX_GROUPS = 1_000

T = TypeVar("T")

log = logging.getLogger(__name__)


class Responder:
    """Belongs to one event loop. ``channels`` are those that are served, by name."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        inbox: Inbox,
        settings: ResponderSettings,
        channels: Mapping[str, Channel],
        *,
        timing: ResponderTiming | None = None,
        slots: asyncio.Semaphore | None = None,
    ) -> None:
        """``slots`` limits the answers at a time of several responders together."""
        self.inbox = inbox
        self.limits = QueueLimits(settings)
        self.approvals = dispatcher.agent.approvals
        self.sessions = dispatcher.sessions
        self.channels = channels
        self._dispatcher = dispatcher
        dispatcher.commands.more_status = self.status_lines
        # A forget in this process reaches the inbox, whoever asks for it.
        self._folder = dispatcher.memory.config.paths.folder
        running_inboxes[self._folder] = inbox.blank
        self._timing = timing or ResponderTiming()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kept-inbox")
        """Changes the inbox, one change after another."""
        self._max_history_messages = settings.max_history_messages
        self._groups: OrderedDict[str, deque[GroupLine]] = OrderedDict()
        """Messages in groups since the last reply that were not addressed to the agent, in memory only."""
        self._slots = slots or asyncio.Semaphore(settings.max_concurrent)
        self._queues: dict[str, ConversationQueue] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        """Task that works on each queue. Both are dropped when the queue is empty."""
        self._replays: dict[Name, EventReplay[AgentEvent]] = {}
        """Events of every message that waits for its answer."""
        self._arriving: dict[Name, asyncio.Future[AcceptedMessage]] = {}
        """Messages that are being written to the inbox."""
        self._dropping: set[asyncio.Task[None]] = set()
        self._consuming: set[asyncio.Task[None]] = set()
        """Agents at work. One may go on after its reply, with a compaction for instance."""

    # start and stop

    async def start(self) -> None:
        """Resume all work in the inbox that is not finished, except for channels that are not served.

        A run that had begun keeps its messages and its session, whatever has arrived since: the agent may have
        answered it already, and recognises it by its messages. Interrupted runs therefore come before waiting
        messages, and these are not debounced: their pause is long over.
        """
        interrupted = ((self.inbox.messages_of(run), run) for run in self.inbox.unfinished())
        for messages, run in (*interrupted, *(([message], None) for message in self.inbox.waiting())):
            chat = SessionKey.parse_full(messages[0].key)
            if channel_name(chat) not in self.channels:
                continue
            for message in messages:
                self.limits.reserve(message.key)
                self._replays[message.channel, message.id] = EventReplay()
            if run is not None:
                self._queue(run.key, chat).interrupted.append(run)
            else:
                self._enqueue(messages[0], chat)
        for queue in self._queues.values():
            queue.hurry()

    async def drain(self, timeout_s: float, *, at_once: asyncio.Event | None = None) -> bool:
        """Accept no more messages, and finish the accepted ones until the timeout or until ``at_once`` is set.

        Return False if some are left. The next start resumes them.
        """
        self.limits.closed = True
        if self._arriving:
            await asyncio.wait(self._arriving.values())
        for queue in self._queues.values():
            queue.hurry()
        finishing = asyncio.create_task(self._finish())
        hurry = asyncio.create_task((at_once or asyncio.Event()).wait())
        await asyncio.wait([finishing, hurry], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        left = set(self._workers.values())
        # Work after a reply that is cut short, such as a compaction, is repeated when it is needed.
        cancelled = {finishing, hurry, *left, *self._consuming}
        for task in cancelled:
            task.cancel()
        await asyncio.wait({*cancelled, *self._dropping})
        for replay in self._replays.values():  # release all waiters; the next process answers the rest
            replay.end()
        self._replays.clear()
        await self._dispatcher.close()
        self._thread.shutdown()
        running_inboxes.pop(self._folder, None)
        return not left

    async def _finish(self) -> None:
        while tasks := {*self._workers.values(), *self._consuming}:
            await asyncio.wait(tasks)

    # accepting messages

    async def accept(self, key: SessionKey, message: Inbound) -> AcceptedMessage:
        """Return when the message is on disk. A message with a known id is not accepted twice."""
        name, conversation = (key.channel, message.id), str(key)
        # A message that arrives may be on disk already, but it can be followed only when it is in its queue.
        arriving = self._arriving.get(name)
        known = self.inbox.find(*name) if arriving is None else await asyncio.shield(arriving)
        if known is not None:
            is_same = known.text in (utf8_safe(message.text), "")  # a text that was forgotten is empty
            if known.key != conversation or not is_same:
                raise MessageConflict(f"Another message has the id '{known.id}' already.")
            return known
        self.limits.check(conversation)
        self.limits.reserve(conversation)
        arriving = self._arriving[name] = self._write(self.inbox.receive, key, message)
        arriving.add_done_callback(partial(self._arrived, name, key))
        return await asyncio.shield(arriving)

    def _arrived(self, name: Name, chat: SessionKey, arriving: asyncio.Future[AcceptedMessage]) -> None:
        """Queue a message that is on disk, even if the caller of `accept` has gone."""
        del self._arriving[name]
        if arriving.cancelled() or arriving.exception() is not None:
            self.limits.release(str(chat))
            return
        message = arriving.result()
        self._replays[name] = EventReplay()
        self._enqueue(message, chat)

    def _enqueue(self, message: AcceptedMessage, chat: SessionKey) -> None:
        queue = self._queue(message.key, chat)
        queue.add(message)
        command = find_command(message)
        if command is not None and command.name == "stop":
            self._stop_before(queue, message)
        elif command is not None and command.name in ("approve", "deny") and queue.current is not None:
            call = CommandCall(command.name, command.rest, queue.current.session_id, message.id)
            approval_id = message.metadata.get(APPROVAL)
            by = f"{message.channel}:{message.sender or ''}"
            self._dispatcher.commands.decide_now(call, by=by, approval_id=approval_id)

    def add_group_line(self, key: SessionKey, line: GroupLine) -> None:
        """Remember a message of a group that needs no answer, as context for the next answer there. If there are too
        many groups, the one that has been silent the longest is forgotten."""
        self._groups.setdefault(str(key), deque(maxlen=self._max_history_messages)).append(line)
        self._groups.move_to_end(str(key))
        if len(self._groups) > _MAX_GROUPS:
            self._groups.popitem(last=False)

    # reading

    def get(self, channel: str, message_id: str) -> tuple[AcceptedMessage, AnswerRun | None]:
        message = self.inbox.find(channel, message_id)
        if message is None:
            raise MessageNotFound(f"There is no message '{message_id}'.")
        return message, self.inbox.find_run(message)

    def follow(
        self, channel: str, message_id: str, *, heartbeat_s: float | None = None
    ) -> AsyncIterator[AgentEvent | None]:
        """Yield the events of the answer to a message, until there is a reply or there will be none.

        Of messages that are answered together, only the last has events. See `EventReplay.follow` for the heartbeat.
        """
        replay = self._replays.get((channel, message_id))
        if replay is None:
            replay = EventReplay[AgentEvent]()
            replay.end()
        return replay.follow(heartbeat_s=heartbeat_s)

    async def wait(self, channel: str, message_id: str) -> tuple[AcceptedMessage, AnswerRun | None]:
        """Return a message and its run once there is a reply, or there will be none."""
        replay = self._replays.get((channel, message_id))
        if replay is not None:
            await replay.ended.wait()
        return self.get(channel, message_id)

    def status_lines(self) -> list[str]:
        lines = [f"Waiting for an answer: {self.limits.count()} of at most {self.limits.max_total} messages."]
        unconfirmed = len(self.inbox.unconfirmed_runs())
        if unconfirmed:
            lines.append(f"Replies that may not have arrived, and are not sent again: {unconfirmed}.")
        return lines

    def find_chat(self, approval_id: str) -> SessionKey | None:
        """Return the key of the chat in which a call of a tool waits for a person, or None."""
        sessions = [asked.session_id for asked in self.approvals.waiting() if asked.id == approval_id]
        queues = (queue for queue in self._queues.values() if queue.current and queue.current.session_id in sessions)
        return next((queue.chat for queue in queues), None)

    # cancelling

    def _stop_before(self, queue: ConversationQueue, stop: AcceptedMessage) -> None:
        """Cancel everything that was sent before a /stop."""
        dropped = [message for message in queue.waiting if message is not stop]
        queue.waiting = deque([stop])
        if dropped:
            task = asyncio.create_task(self._drop(dropped))
            self._dropping.add(task)
            task.add_done_callback(self._dropping.discard)
        if queue.answering is not None:
            queue.answering.cancel()

    async def _drop(self, messages: Sequence[AcceptedMessage]) -> None:
        run = await self._until_done(partial(self._write, self.inbox.begin, messages, ""))
        await self._change(run, cancelled=True)
        self._end_replays(messages)
        self.limits.release(run.key, len(messages))

    # answering, one run of a conversation after the other

    def _queue(self, key: str, chat: SessionKey) -> ConversationQueue:
        """Return the queue of a conversation. The worker of a new queue starts when the caller awaits or returns."""
        queue = self._queues.get(key)
        if queue is None:
            queue = ConversationQueue(key, chat, self.channels[channel_name(chat)])
            self._queues[key] = queue
            self._workers[key] = asyncio.create_task(self._work_on(queue))
        return queue

    async def _work_on(self, queue: ConversationQueue) -> None:
        """Answer and deliver until a queue is empty.

        A slot is held for the answer only: a channel that is slow or down must not stop other conversations.
        """
        try:
            while queue.waiting or queue.interrupted:
                await queue.wait_for_debounce()
                slot = AnswerSlot(self._slots)
                await slot.take()
                try:
                    run = await self._answer_next(queue, slot)
                finally:
                    slot.leave()
                messages = self.inbox.messages_of(run)
                self._end_replays(messages)
                try:
                    if queue.channel.pushes:
                        await deliver(run, queue.channel, messages[-1].metadata, self._change, self._timing)
                finally:
                    self.limits.release(run.key, len(messages))
        except Exception:
            log.exception("a conversation came to a halt; the rest of it is answered after the next start")
            unfinished = (run for run in self.inbox.unfinished() if run.key == queue.key)
            self._end_replays(queue.waiting)
            self._end_replays(message for run in unfinished for message in self.inbox.messages_of(run))
        finally:
            del self._queues[queue.key], self._workers[queue.key]

    async def _answer_next(self, queue: ConversationQueue, slot: AnswerSlot) -> AnswerRun:
        """Return the next run with its reply, or cancelled.

        There are two cancellations. If ``answering`` alone is cancelled, the answer is no longer wanted, and the run
        is recorded as cancelled. If this task is cancelled, the process ends: the run stays unfinished in the inbox,
        and the next start resumes it.
        """
        job = await self._begin_next(queue, slot)
        if job.run.parts is not None or job.run.cancelled:
            return job.run
        queue.current = job.run
        queue.answering = asyncio.create_task(self._answer(job))
        try:
            await asyncio.wait([queue.answering])
        except asyncio.CancelledError:
            queue.answering.cancel()
            await asyncio.wait([queue.answering])
            raise
        finally:
            answering, queue.answering, queue.current = queue.answering, None, None
        if answering.cancelled():
            run = await self._change(job.run, cancelled=True)
            try:
                await self._dispatcher.agent.stop(run.session_id, run.message_ids)
            except KeptError as exc:
                log.warning("a stopped message stays in the conversation (%s)", exc.code)
            return run
        return answering.result()

    async def _begin_next(self, queue: ConversationQueue, slot: AnswerSlot) -> AnswerJob:
        """Record the beginning of the next run.

        An interrupted run that has its reply is returned as it is: only its delivery is left.
        """
        if queue.interrupted:
            run = queue.interrupted.popleft()
            messages = self.inbox.messages_of(run)
            if run.parts is None:
                run = await self._change(run, attempts=run.attempts + 1)
        else:
            find_session = partial(self._dispatcher.current_session_id, queue.chat)
            session_id = await self._until_done(find_session, KeptError, "a session cannot be opened")
            messages = queue.take()
            run = await self._until_done(partial(self._write, self.inbox.begin, messages, session_id))
        command = find_command(messages[0]) if len(messages) == 1 else None
        replay = self._replays.setdefault((run.channel, messages[-1].id), EventReplay())
        is_heartbeat = all(message.metadata.get(HEARTBEAT) is True for message in messages)
        return AnswerJob(run, messages, command, queue.channel, replay, slot, is_heartbeat)

    async def _change(self, run: AnswerRun, **fields: Any) -> AnswerRun:
        return await self._until_done(partial(self._write, self.inbox.change, run, **fields))

    def _end_replays(self, messages: Iterable[AcceptedMessage]) -> None:
        for message in messages:
            replay = self._replays.pop((message.channel, message.id), None)
            if replay is not None:
                replay.end()

    # writing to the inbox

    def _write(self, change: Callable[..., T], *args: Any, **fields: Any) -> asyncio.Future[T]:
        """Start a change. It goes on when the caller is cancelled."""
        future = asyncio.get_running_loop().run_in_executor(self._thread, partial(change, *args, **fields))
        # It may fail when its caller is gone.
        future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return asyncio.shield(future)

    async def _until_done(
        self,
        act: Callable[[], Awaitable[T]],
        kind: type[KeptError] = WriteFailed,
        problem: str = "the inbox cannot be written",
    ) -> T:
        """Do what has to be on disk before the next step. Retry for as long as the disk is full."""
        backoff: Backoff | None = None
        while True:
            try:
                return await act()
            except kind as exc:
                backoff = backoff or self._timing.backoff()
                log.error("%s; trying again (%s)", problem, exc.message)
                await asyncio.sleep(backoff.next_s())

    # one answer: through the dispatcher, into the inbox, with a reply in any case

    async def _answer(self, job: AnswerJob) -> AnswerRun:
        """Return the run with its reply. A failure becomes a reply too, with an error code.

        This waits for the Reply event only, and the task that consumes the events of the agent may go on after it.
        """
        channel = job.channel
        error: str | None = None
        if job.run.attempts > self._timing.max_attempts:
            reply, error = Reply("This message could not be answered.", ""), "gave_up"
        else:
            replied: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._consume(job, replied))
            self._consuming.add(task)
            task.add_done_callback(self._consuming.discard)
            showing = asyncio.create_task(self._show_progress(job)) if channel.pushes else None
            try:
                reply = await replied
            except asyncio.CancelledError:
                task.cancel()
                await asyncio.wait([task])
                raise
            except KeptError as exc:
                log.warning("%s: a message could not be answered: %s %s", job.run.channel, exc.message, exc.hint)
                reply, error = Reply(explain_failure(exc), ""), exc.code
            except Exception:
                log.exception("%s: a message could not be answered", job.run.channel)
                reply, error = Reply("Unexpected error. The log of the gateway has the details.", ""), "internal"
            finally:
                if showing:
                    showing.cancel()
        if job.is_heartbeat:
            reply = quiet_heartbeat(reply, is_failure=error is not None)
        parts = [] if reply.silent else split_reply(reply.text, channel)
        if len(parts) > MAX_PARTS:
            parts = [*parts[: MAX_PARTS - 1], TOO_LONG]
        entry_id = reply.entry_id or None
        fields = {"push": channel.pushes, "entry_id": entry_id, "error": error, "details": job.details(reply)}
        return await self._change(job.run, parts=tuple(parts), **fields)

    async def _consume(self, job: AnswerJob, reply: asyncio.Future[Reply]) -> None:
        """Publish the events of an answer, and set ``reply`` to the reply or the error."""
        run, dispatcher = job.run, self._dispatcher
        inbound = [message.inbound for message in job.messages]
        group = self._groups.pop(run.key, ())
        try:
            answer = dispatcher.answer(run.session_id, inbound, command=job.command, group=group)
            async with aclosing(answer) as events:
                async for event in events:
                    if not isinstance(event, Reply):
                        job.replay.add(event)
                        if isinstance(event, ApprovalAsked | ApprovalDecided):
                            await self._handle_approval(job, event)
                    elif not reply.done():  # it is done if the caller was cancelled
                        reply.set_result(event)
            if job.command is None:
                dispatcher.index_later(len(inbound) + 1)
            if not reply.done():
                reply.set_result(Reply("", "", silent=True))
        except Exception as exc:
            if reply.done():
                log.exception("%s: the work after a reply failed", run.channel)
            else:
                reply.set_exception(exc)

    async def _handle_approval(self, job: AnswerJob, event: ApprovalAsked | ApprovalDecided) -> None:
        """Ask the person, who may take minutes. Other conversations are answered meanwhile."""
        if isinstance(event, ApprovalDecided):
            await job.slot.take()
            return
        job.slot.leave()
        if job.channel.pushes:
            to = job.messages[-1].metadata
            try:
                await job.channel.ask(to, event)
            except Exception as exc:  # noqa: BLE001 - a channel's library may raise anything; unasked, it is denied
                log.warning("%s: a person could not be asked (%s)", job.run.channel, type(exc).__name__)
                self._dispatcher.agent.approvals.decide(event.id, allow=False, by=NOBODY)

    async def _show_progress(self, job: AnswerJob) -> None:
        to, is_quiet = job.messages[-1].metadata, job.is_heartbeat
        while True:
            written = "".join(event.text for event in job.replay.events if isinstance(event, ReplyDelta))
            await job.channel.show_progress(to, "" if is_quiet else written)
            await asyncio.sleep(self._timing.progress_s)

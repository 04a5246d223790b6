"""Answers single runs: through the dispatcher, into the inbox, with a reply in any case."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar

from kept.agent.events import NOBODY, ApprovalAsked, ApprovalDecided, Reply
from kept.base.clock import Backoff
from kept.base.remote_errors import BudgetExhausted, ContextOverflow, ModelError, ModelRefused
from kept.base.values import frozen
from kept.errors import KeptError, WriteFailed
from kept.gateway.channel import Channel, ResponderTiming, limit_parts, split_reply
from kept.gateway.conversation_queue import AnswerSlot, EventReplay, GroupHistory
from kept.gateway.dispatcher import Command, Dispatcher
from kept.gateway.inbox import Inbox
from kept.gateway.inbox_records import AcceptedMessage, AnswerRun
from kept.sessions.entries import HEARTBEAT

_HEARTBEAT_OK = re.compile(r"\bHEARTBEAT_OK\b[.!]?")

T = TypeVar("T")

log = logging.getLogger(__name__)


class InboxWriter:
    """Changes an inbox from the event loop: in one thread, one change after another."""

    def __init__(self, timing: ResponderTiming) -> None:
        self._timing = timing
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kept-inbox")

    def write(self, change: Callable[[], T]) -> asyncio.Future[T]:
        """Start a change. To keep it going when the caller is cancelled, await it through `asyncio.shield`."""
        future = asyncio.get_running_loop().run_in_executor(self._thread, change)
        # It may fail when its caller is gone.
        future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return future

    async def write_until_done(self, change: Callable[[], T]) -> T:
        """Make a change that has to be on disk before the next step. Retry for as long as the disk is full."""
        backoff: Backoff | None = None
        while True:
            try:
                return await asyncio.shield(self.write(change))
            except WriteFailed as exc:
                log.error("the inbox cannot be written; trying again (%s)", exc.message)
                backoff = backoff or self._timing.backoff()
                await asyncio.sleep(backoff.next_s())

    def close(self) -> None:
        self._thread.shutdown()


@frozen
class AnswerJob:
    """A run that is to be answered."""

    run: AnswerRun
    messages: Sequence[AcceptedMessage]
    command: Command | None
    """Command that the only message gives."""
    channel: Channel
    replay: EventReplay
    """Events of the run, for clients that follow its last message."""
    slot: AnswerSlot


_FAILURES: Mapping[type[KeptError], str] = {
    ContextOverflow: "This conversation is too long for the model. Start a new one with /new.",
    BudgetExhausted: "Today's budget for the model is used up. Try again tomorrow.",
    ModelRefused: "The model does not accept this conversation. Start a new one with /new.",
    ModelError: "The model cannot answer at the moment. Try again later.",
}


def explain_failure(error: KeptError) -> str:
    """Return what a person in a chat is told. Addresses, paths and settings are for the log alone."""
    return next((text for kind, text in _FAILURES.items() if isinstance(error, kind)), "That did not work.")


def is_heartbeat(messages: Sequence[AcceptedMessage]) -> bool:
    return all((message.inbound.metadata or {}).get(HEARTBEAT) is True for message in messages)


def quiet_heartbeat(reply: Reply, *, is_failure: bool) -> Reply:
    """Return a reply to a heartbeat as it is sent: nobody asked, so a failure is for the log alone.

    Checklists that were written for OpenClaw ask for HEARTBEAT_OK if there is nothing to say.
    """
    text = _HEARTBEAT_OK.sub("", reply.text)
    is_silent = reply.silent or is_failure or not text.strip(" \n*_`.!")
    return replace(reply, text="" if is_silent else text.strip(), silent=is_silent)


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
        """Return the run with its reply. A failure becomes a reply too, with an error code.

        This waits for the Reply event only. The agent may go on after it, with a compaction for instance: the task
        that consumes its events stays in ``_tasks`` until it is done.
        """
        channel = job.channel
        error: str | None = None
        if job.run.attempts > self._timing.max_attempts:
            reply, error = Reply("This message could not be answered.", ""), "gave_up"
        else:
            replied: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._consume(job, replied))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
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
        if is_heartbeat(job.messages):
            reply = quiet_heartbeat(reply, is_failure=error is not None)
        parts = [] if reply.silent else limit_parts(split_reply(reply.text, channel.limit, measure=channel.measure))
        entry_id = reply.entry_id or None
        return await self._writer.write_until_done(
            lambda: self._inbox.answer(
                job.run, parts, push=channel.pushes, entry_id=entry_id, error=error, details=job.replay.details(reply)
            )
        )

    async def _consume(self, job: AnswerJob, reply: asyncio.Future[Reply]) -> None:
        """Publish the events of an answer, and set ``reply`` to the reply or the error."""
        run, dispatcher = job.run, self._dispatcher
        inbound = [message.inbound for message in job.messages]
        group = self._groups.take(run.key)
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
                dispatcher.indexer.add(len(inbound) + 1)
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
            to = job.messages[-1].inbound.metadata or {}
            try:
                await job.channel.ask(to, event)
            except Exception as exc:  # noqa: BLE001 - a channel's library may raise anything; unasked, it is denied
                log.warning("%s: a person could not be asked (%s)", job.run.channel, type(exc).__name__)
                self._dispatcher.agent.approvals.decide(event.id, allow=False, by=NOBODY)

    async def _show_progress(self, job: AnswerJob) -> None:
        to, is_quiet = job.messages[-1].inbound.metadata or {}, is_heartbeat(job.messages)
        while True:
            await job.channel.show_progress(to, "" if is_quiet else job.replay.text)
            await asyncio.sleep(self._timing.progress_s)

    async def finish(self, timeout_s: float) -> None:
        """Wait for agents that still work after their replies. Work that is cut short is repeated when it is needed."""
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=timeout_s)
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)

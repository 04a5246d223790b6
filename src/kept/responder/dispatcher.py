"""Routes messages to a command or to the agent. The terminal and the gateway share it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from kept.agent.events import AgentEvent, AnsweringAgent, GroupLine, Inbound, Reply
from kept.errors import KeptError
from kept.memory import Memory
from kept.responder.commands import Command, CommandCall, Commands
from kept.sessions.session_key import SessionKey
from kept.sessions.store import SessionStore

log = logging.getLogger(__name__)


class Dispatcher:
    """Chooses between commands and agent. The caller adds the messages that the agent answered to ``cadence``."""

    def __init__(
        self, agent: AnsweringAgent, sessions: SessionStore, commands: Commands, *, cadence: IndexCadence
    ) -> None:
        self.agent = agent
        self.sessions = sessions
        self.commands = commands
        self.cadence = cadence

    async def current_session_id(self, key: SessionKey) -> str:
        """Return the id of the session that a conversation is in now. Begin one if it has none."""
        record = await asyncio.to_thread(
            self.sessions.get_or_create,
            key.channel,
            key.user_id,
            account_id=key.account_id,
            chat_type=key.chat_type,
        )
        return record.id

    def answer(
        self,
        session_id: str,
        messages: Sequence[Inbound],
        *,
        command: Command | None = None,
        group: Sequence[GroupLine] = (),
    ) -> AsyncGenerator[AgentEvent, None]:
        """Return the events of an answer; the last is a Reply. ``command`` is the one that the only message gives.

        The agent's own generator is returned, so that a streamed token passes nothing here.
        """
        if command is None:
            return self.agent.respond(session_id, messages, group=group)
        call = CommandCall(command, session_id, messages[0].id)
        if command.name in ("new", "reset") and command.rest:
            return self._answer_in_new_session(call, messages[0], group)
        return self._run_command(call)

    async def _run_command(self, call: CommandCall) -> AsyncGenerator[AgentEvent, None]:
        yield Reply(await self.commands.run(call), "")

    async def _answer_in_new_session(
        self, call: CommandCall, message: Inbound, group: Sequence[GroupLine]
    ) -> AsyncGenerator[AgentEvent, None]:
        """Answer the text after /new in the session that it begins."""
        session = await self.commands.start_session(call)
        text = replace(message, text=call.command.rest)
        async with aclosing(self.agent.respond(session.id, [text], group=group)) as events:
            async for event in events:
                yield event
        self.cadence.add(2)


class IndexCadence:
    """Indexes new messages every few messages, so that no search has many of them to index."""

    def __init__(self, memory: Memory, *, every_messages: int) -> None:
        self._memory = memory
        self._every_messages = every_messages
        self._unindexed = 0
        self._task: asyncio.Task[None] | None = None

    def add(self, messages: int) -> None:
        """Count messages that were added to a transcript. Start indexing if they are due."""
        self._unindexed += messages
        if self._unindexed >= self._every_messages and (self._task is None or self._task.done()):
            self._unindexed = 0
            self._task = asyncio.create_task(self._index())

    async def _index(self) -> None:
        try:
            await asyncio.to_thread(self._memory.sync)
        except KeptError as exc:
            log.warning("the index could not be brought up to date (%s)", exc.code)

    async def close(self) -> None:
        """Wait for an indexing that is running: its thread cannot be interrupted."""
        if self._task is not None:
            await asyncio.wait([self._task])

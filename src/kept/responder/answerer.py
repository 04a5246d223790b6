"""One turn of one conversation: a command, or the agent. The terminal and the gateway share it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace

from kept.agent.events import AgentEvent, AnsweringAgent, GroupLine, Inbound, Reply
from kept.errors import KeptError
from kept.memory import Memory
from kept.responder.commands import CommandCall, Commands, find_command
from kept.sessions.session_key import SessionKey
from kept.sessions.store import SessionStore

log = logging.getLogger(__name__)


class Dispatcher:
    def __init__(
        self, agent: AnsweringAgent, memory: Memory, sessions: SessionStore, commands: Commands, *, index_every: int
    ) -> None:
        self.agent = agent
        self.memory = memory
        self.sessions = sessions
        self.commands = commands
        self._index_every = index_every
        self._unindexed = 0
        self._indexing: asyncio.Task[None] | None = None

    async def session_of(self, key: SessionKey) -> str:
        """The session that a conversation is in now."""
        record = await asyncio.to_thread(
            self.sessions.get_or_create,
            key.channel,
            key.user_id,
            account_id=key.account_id,
            chat_type=key.chat_type,
        )
        return record.id

    async def answer(
        self, session_id: str, messages: Sequence[Inbound], *, group: Sequence[GroupLine] = ()
    ) -> AsyncIterator[AgentEvent]:
        """Ends with a Reply. A command is a turn of its own."""
        command = find_command(messages[0]) if len(messages) == 1 else None
        if command is not None:
            asked = CommandCall(command, session_id, messages[0].id)
            if command.name not in ("new", "reset") or not command.rest:
                yield Reply(await self.commands.run(asked), "")
                return
            session_id = (await self.commands.begin_anew(asked)).id
            messages = [replace(messages[0], text=command.rest)]
        async with aclosing(self.agent.respond(session_id, messages, group=group)) as events:
            async for event in events:
                yield event
        self._count(len(messages) + 1)

    def _count(self, messages: int) -> None:
        """What was said is taken into the index now and then, so that no search has much to catch up with."""
        self._unindexed += messages
        if self._unindexed >= self._index_every and (self._indexing is None or self._indexing.done()):
            self._unindexed = 0
            self._indexing = asyncio.create_task(self._index())

    async def _index(self) -> None:
        try:
            await asyncio.to_thread(self.memory.sync)
        except KeptError as exc:
            log.warning("the index could not be brought up to date (%s)", exc.code)

    async def close(self) -> None:
        """Waits for an index that is being brought up to date: a thread cannot be told to stop."""
        if self._indexing is not None:
            await asyncio.wait([self._indexing])

"""Agent: answers messages, remembers, and keeps a conversation within the window of its model."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from kept.agent.compaction import CompactionRequest, compact
from kept.agent.equipment import AgentServices
from kept.agent.events import AgentEvent, CompactionResult, GroupLine, Inbound
from kept.agent.journal import SessionLog
from kept.agent.loop import TurnLoop
from kept.clock import Clock
from kept.llm.base import ChatModel
from kept.memory import Memory
from kept.sessions.store import SessionStore
from kept.tools.toolbox import Toolbox

_REMEMBERED = 32
"""Sessions of which what was read is kept at hand."""


class Agent:
    """One agent: a memory, its conversations and a model.

    >>> agent = Agent(memory, sessions, model)
    >>> session = sessions.get_or_create("terminal", "me")
    >>> async for event in agent.respond(session.id, [Inbound("1", "Which port is staging on?")]):
    ...     print(event)

    Turns of one session follow each other; those of different sessions run side by side.
    """

    def __init__(
        self,
        memory: Memory,
        sessions: SessionStore,
        model: ChatModel,
        *,
        toolbox: Toolbox | None = None,
        clock: Clock | None = None,
        retry_wait_s: float = 1.0,
    ) -> None:
        self.equipment = AgentServices(
            config=memory.config,
            memory=memory,
            sessions=sessions,
            model=model,
            toolbox=toolbox or Toolbox(memory, sessions),
            clock=clock or memory.clock,
            retry_wait_s=retry_wait_s,
        )
        self._journals: OrderedDict[str, SessionLog] = OrderedDict()
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}
        self._told: set[str] = set()

    def respond(
        self, session_id: str, messages: Sequence[Inbound], *, group: Sequence[GroupLine] = ()
    ) -> AsyncIterator[AgentEvent]:
        """Answers messages of one conversation, which are one turn. The last event is a `Reply`; what is left to do
        after it, such as a compaction, is done when the next event is asked for, of which there is none."""
        return self._respond(session_id, messages, group)

    async def _respond(
        self, session_id: str, messages: Sequence[Inbound], group: Sequence[GroupLine]
    ) -> AsyncIterator[AgentEvent]:
        async with self._in_turn(session_id):
            journal = await asyncio.to_thread(self._journal, session_id)
            turn = TurnLoop(self.equipment, journal, messages, group, told=self._told)
            async with aclosing(turn.run()) as events:
                async for event in events:
                    yield event

    async def compact(self, session_id: str, *, instructions: str | None = None) -> CompactionResult:
        async with self._in_turn(session_id):
            journal = await asyncio.to_thread(self._journal, session_id)
            return await compact(self.equipment, journal, CompactionRequest("asked for", instructions=instructions))

    def _journal(self, session_id: str) -> SessionLog:
        journal = self._journals.get(session_id) or SessionLog(self.equipment.sessions, session_id)
        self._journals[session_id] = journal
        self._journals.move_to_end(session_id)
        while len(self._journals) > _REMEMBERED:
            self._journals.popitem(last=False)
        return journal

    @asynccontextmanager
    async def _in_turn(self, session_id: str) -> AsyncIterator[None]:
        lock, users = self._turns.get(session_id, (asyncio.Lock(), 0))
        self._turns[session_id] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._turns[session_id]
            if users == 1:
                del self._turns[session_id]
            else:
                self._turns[session_id] = (lock, users - 1)

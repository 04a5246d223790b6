"""Agent: answers messages, remembers, and keeps a conversation within the window of its model."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

from kept.agent.compaction import CompactionRequest, compact
from kept.agent.events import AgentEvent, CompactionResult, GroupLine, Inbound
from kept.agent.services import AgentServices, ModelLimits
from kept.agent.session_log import SessionLog
from kept.agent.turn import AgentTurn
from kept.clock import Clock
from kept.llm.base import ChatModel
from kept.memory import Memory
from kept.sessions.store import SessionStore
from kept.tools.toolbox import Toolbox

_MAX_LOGS = 32
"""Sessions whose lines are kept in memory."""


class Agent:
    """One agent: a memory, its conversations and a model.

    >>> agent = Agent(memory, sessions, model)
    >>> session = sessions.get_or_create("terminal", "me")
    >>> async for event in agent.respond(session.id, [Inbound("1", "Which port is staging on?")]):
    ...     print(event)

    Turns of one session run one after the other; those of different sessions run concurrently.
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
        self.services = AgentServices(
            config=memory.config,
            memory=memory,
            sessions=sessions,
            model=model,
            toolbox=toolbox or Toolbox(memory, sessions),
            clock=clock or memory.clock,
            limits=ModelLimits(model),
            retry_wait_s=retry_wait_s,
        )
        self._logs: OrderedDict[str, SessionLog] = OrderedDict()
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}
        """Lock of each session in use, and the number of turns that hold it or wait for it."""

    def respond(
        self, session_id: str, messages: Sequence[Inbound], *, group: Sequence[GroupLine] = ()
    ) -> AsyncGenerator[AgentEvent, None]:
        """Answer messages of one conversation in a single turn; see `AgentTurn.run`."""
        return AgentTurn(self.services, self._session(session_id), messages, group).run()

    async def compact(self, session_id: str, *, instructions: str | None = None) -> CompactionResult:
        async with self._session(session_id) as log:
            return await compact(self.services, log, CompactionRequest("asked for", instructions=instructions))

    @asynccontextmanager
    async def _session(self, session_id: str) -> AsyncIterator[SessionLog]:
        """Hold a session for one turn, and return its log."""
        lock, users = self._turns.get(session_id, (asyncio.Lock(), 0))
        self._turns[session_id] = (lock, users + 1)
        try:
            async with lock:
                yield await self._open_log(session_id)
        finally:
            lock, users = self._turns[session_id]
            if users == 1:
                del self._turns[session_id]
            else:
                self._turns[session_id] = (lock, users - 1)

    async def _open_log(self, session_id: str) -> SessionLog:
        log = self._logs.get(session_id)
        if log is None:
            log = await asyncio.to_thread(SessionLog, self.services.sessions, session_id)
        self._logs[session_id] = log
        self._logs.move_to_end(session_id)
        while len(self._logs) > _MAX_LOGS:
            self._logs.popitem(last=False)
        return log

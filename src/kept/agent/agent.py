"""Agent: answers messages (`turn`), remembers, and keeps a conversation within the window of its model."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakValueDictionary

from kept.agent.compaction import CompactionRequest, compact
from kept.agent.events import AgentEvent, ApprovalDesk, CompactionResult, GroupLine, Inbound
from kept.agent.extra_tools import ExtraTools, FunctionTool
from kept.agent.flush import flush_ended
from kept.agent.services import AgentServices, ModelLimits, SessionModels
from kept.agent.session_log import ANSWERS, SessionLog, run_to_end
from kept.agent.tools.tool_definitions import TOOLS
from kept.agent.turn import REPLY, AgentTurn
from kept.errors import KeptError
from kept.memory import Memory
from kept.models.base import NO_REPLY, ChatModel
from kept.sessions.entries import Message, Text
from kept.sessions.people import People
from kept.sessions.store import SessionStore
from kept.storage.open import open_agent
from kept.storage.record_store import load_key

_FENCE_KEY = "fence.key"
"""Key of the markers around data in requests to the model: the same in every process, so that a provider's cache of a
conversation outlives a restart."""
STOPPED = "(Stopped by the person before there was an answer.)"
_MAX_LOGS = 32
"""Sessions whose lines are kept in memory."""

log = logging.getLogger(__name__)


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
        tools: Sequence[Callable[..., Any] | FunctionTool] = (),
        retry_wait_s: float = 1.0,
    ) -> None:
        """``tools`` are functions that the model may call. See `FunctionTool` for those that need permission."""
        self.services = AgentServices(
            memory=memory,
            sessions=sessions,
            model=model,
            limits=ModelLimits(model),
            people=People(memory.config),
            extra=ExtraTools(
                tools,
                memory.config.agent.mcp_servers,
                reserved=[tool.name for tool in TOOLS],
                clock=memory.clock,
            ),
            approvals=ApprovalDesk(),
            retry_wait_s=retry_wait_s,
            secret=load_key(open_agent(memory.config), _FENCE_KEY),
        )
        self.models = SessionModels(self.services)
        self.approvals = self.services.approvals
        self._logs: dict[str, SessionLog] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Lock of each session in use. It goes with the last turn that holds it or waits for it."""

    def respond(
        self,
        session_id: str,
        messages: Sequence[Inbound],
        *,
        group: Sequence[GroupLine] = (),
    ) -> AsyncGenerator[AgentEvent, None]:
        """Answer messages of one conversation in a single turn; see `AgentTurn.run`.

        The messages are in the transcript, with their ids, before the model is called. Called again with the same ids
        after a crash, it resumes: a reply that is in the transcript is returned without calling the model.
        """
        return AgentTurn(self.models, self._session(session_id), messages, group).run()

    async def stop(self, session_id: str, message_ids: Sequence[str]) -> None:
        """Record that messages are no longer to be answered, so that no later request repeats them."""
        async with self._session(session_id) as log:
            view = await asyncio.to_thread(log.view)
            received = {logged.inbound_id for logged in view.inbound}
            open_ids = [name for name in message_ids if name in received and name not in view.answered_ids]
            if open_ids:
                metadata = {ANSWERS: open_ids, REPLY: NO_REPLY}
                await run_to_end(log.add, Message("assistant", (Text(STOPPED),), metadata=metadata))

    async def compact(self, session_id: str, *, instructions: str | None = None) -> CompactionResult:
        async with self._session(session_id) as log:
            services = await asyncio.to_thread(self.models.equip, log)
            return await compact(services, log, CompactionRequest("asked for", instructions=instructions))

    async def flush_ended(self, session_id: str) -> None:
        """Write down what is new in a session that has ended. A failure is logged: nobody waits for it."""
        try:
            async with self._session(session_id) as ended:
                services = await asyncio.to_thread(self.models.equip, ended)
                await flush_ended(services.writer, ended)
        except KeptError as exc:
            log.warning("session %s: it could not be flushed at its end (%s)", session_id, exc.code)

    async def close(self) -> None:
        """End the MCP servers that the agent has started."""
        await self.services.extra.close()

    @asynccontextmanager
    async def _session(self, session_id: str) -> AsyncIterator[SessionLog]:
        """Hold a session for one turn, and return its log."""
        async with self._turns.setdefault(session_id, asyncio.Lock()):
            log = self._logs.pop(session_id, None)
            if log is None:
                log = await asyncio.to_thread(SessionLog, self.services.sessions, session_id)
            self._logs[session_id] = log
            if len(self._logs) > _MAX_LOGS:
                del self._logs[next(iter(self._logs))]  # the one that was not used for longest
            yield log

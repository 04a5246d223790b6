"""Agent: answers messages (`turn`), remembers, and keeps a conversation within the window of its model.

Its services are shared by all that works for it: what it has, and what it has learned about its models.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import field, replace
from typing import Any
from weakref import WeakValueDictionary

from kept.agent.compaction import CompactionRequest, compact
from kept.agent.context import Budget, plan_budget
from kept.agent.events import AgentEvent, ApprovalDesk, CompactionResult, GroupLine, Inbound
from kept.agent.extra_tools import ExtraTools, FunctionTool
from kept.agent.flush import flush_ended
from kept.agent.session_log import ANSWERS, SessionLog, run_to_end
from kept.agent.tools.tool_definitions import TOOLS, TOOLS_BY_NAME
from kept.agent.turn import REPLY, AgentTurn
from kept.base.values import frozen
from kept.errors import KeptError
from kept.memory import Memory
from kept.models.base import DEFAULT_CHOICE, NO_REPLY, ChatModel, ModelFamily, ToolSpec
from kept.sessions.entries import MODEL, Message, StateEntry, Text
from kept.sessions.people import People
from kept.sessions.record import SessionRecord
from kept.sessions.store import SessionStore
from kept.storage.open import open_agent
from kept.storage.record_store import load_key

_MEMORY_SPECS = tuple(
    ToolSpec(tool.name, tool.description, tool.parameters)
    for tool in map(TOOLS_BY_NAME.__getitem__, ("memory_search", "memory_get", "memory_write"))
)
_MIN_WINDOW = 1_000
_MAX_SCALE = 4.0

_FENCE_KEY = "fence.key"
"""Key of the markers around data in requests to the model: the same in every process, so that a provider's cache of a
conversation outlives a restart."""
STOPPED = "(Stopped by the person before there was an answer.)"
_MAX_LOGS = 32
"""Sessions whose lines are kept in memory."""

log = logging.getLogger(__name__)


class ModelLimits:
    """Size of a model's window as the agent has learned it, in estimated tokens.

    Our token estimates are too low for some languages and models, which shows only in the provider's answers.
    """

    def __init__(self, model: ChatModel, *, turn_window: int | None = None, scale: float = 1.0) -> None:
        self._model = model
        self._turn_window = turn_window
        self._scale = scale

    @property
    def window(self) -> int:
        window = self._model.context_window
        return max(_MIN_WINDOW, int(min(window, self._turn_window or window) / self._scale))

    def narrowed(self, refused_tokens: int) -> ModelLimits:
        """Return limits for one turn, in which the model has refused a request of this many estimated tokens."""
        window = max(_MIN_WINDOW, int(min(refused_tokens, self.window) * self._scale))
        return ModelLimits(self._model, turn_window=window, scale=self._scale)

    def learn_answer(self, counted: int, estimated: int) -> None:
        """Adapt the estimates to the provider's count. The scale never falls below 1: better compact early than late.

        Claude Code counts its own context, with its own prompt and tools, which says nothing about ours.
        """
        if self._model.runs_tools and counted and estimated:
            self._scale = min(_MAX_SCALE, max(1.0, counted / estimated))


@frozen
class AgentServices:
    memory: Memory
    sessions: SessionStore
    model: ChatModel
    limits: ModelLimits
    people: People
    extra: ExtraTools
    """Tools besides those of the memory, which the program and the settings add."""
    approvals: ApprovalDesk
    retry_wait_s: float
    """Delay before a failed call is retried; it doubles with each attempt."""
    secret: bytes = field(repr=False)
    """Key of the markers of data. It is sent to nobody."""
    background: AgentServices | None = None
    """The same with the model for flushes and summaries, if that is another."""

    @property
    def flushes(self) -> bool:
        """True if facts are written down before messages leave the context."""
        return self.memory.config.agent.compaction.memory_flush.enabled

    @property
    def writer(self) -> AgentServices:
        """Services for flushes and summaries."""
        return self.background or self

    @property
    def budget(self) -> Budget:
        """Division of the model's window, in estimated tokens."""
        return plan_budget(self.limits.window, self.memory.config.agent.compaction)

    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools that a request offers to the model."""
        if not self.model.runs_tools or self.memory.config.agent.tools.max_steps == 0:
            return ()
        own = _MEMORY_SPECS if self.memory.settings.enabled else ()
        return (*own, *(tool.spec for tool in self.extra.tools.values()))


# the model of each session: what the settings offer, and what a person chose with a command


class SessionModels:
    """Models of an agent. What is learned about a model's window is shared by all sessions that use it."""

    def __init__(self, services: AgentServices) -> None:
        self._main = services
        model = services.model
        self._family = model if isinstance(model, ModelFamily) else ModelFamily(model, {})
        self._limits: dict[int, ModelLimits] = {id(services.model): services.limits}

    def equip(self, session: SessionLog) -> AgentServices:
        """Return the services for a conversation: memory and tools as the person or group in it sees them, and its
        model. Everything that the model recalls, reads or writes goes through them."""
        memory = self._main.memory
        if session.memory is None:  # who talks in a conversation never changes
            viewer = self._main.people.viewer_of(session.key)
            session.memory = memory if viewer == memory.viewer else memory.as_person(viewer)
        services = replace(self._main, memory=session.memory)
        background = self._family.background
        if background is not None:
            services = replace(services, background=self._with_model(services, background))
        if self._family.choices:
            services = self._with_model(services, self._find_model(session.sessions.get(session.session_id)))
        return services

    def _with_model(self, services: AgentServices, model: ChatModel) -> AgentServices:
        limits = self._limits.setdefault(id(model), ModelLimits(model))
        return replace(services, model=model, limits=limits)

    def _find_model(self, record: SessionRecord) -> ChatModel:
        """Return the model of a session. A choice that the settings do not offer, as in an imported session, or that
        cannot be opened, is not used."""
        try:
            return self._family.find(record.model_override) or self._main.model
        except KeptError as exc:
            log.warning("session %s: its model cannot be used: %s", record.id, exc.message)
            return self._main.model

    def describe(self, record: SessionRecord) -> str:
        """Return the model of a session and how much it thinks, in words."""
        model, thinking = self._find_model(record), self._main.memory.config.agent.model.thinking
        return f"model {model.name} ({model.provider}){f', thinking {thinking}' if thinking else ''}"

    def choose(self, sessions: SessionStore, session_id: str, choice: str) -> str:
        """Choose the model of a session, and return a reply."""
        names = (DEFAULT_CHOICE, *self._family.choices)
        if choice not in names:
            uses = f"This conversation uses {self.describe(sessions.get(session_id))}."
            return f"{uses} You can choose: {', '.join(names)}."
        self._family.find(choice)  # raises if it cannot be used
        sessions.append(session_id, StateEntry(MODEL, None if choice == DEFAULT_CHOICE else choice))
        return f"From now on, this conversation uses {self.describe(sessions.get(session_id))}."


# the agent


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

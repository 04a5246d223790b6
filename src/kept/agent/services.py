"""Shared by all parts of an agent: its services, the limits learned about its model, and calls outside of a reply.

These calls wait for the whole answer, are retried, and read a long conversation in pieces.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import field, replace
from typing import Literal, TypeVar

from kept.agent.answer import ModelAnswer
from kept.agent.context import Budget, plan_budget
from kept.agent.events import ApprovalDesk
from kept.agent.extra_tools import ExtraTools
from kept.agent.fence import make_fence
from kept.agent.session_log import LoggedMessage, SessionLog
from kept.agent.tools.tool_definitions import TOOLS_BY_NAME
from kept.base.clock import Backoff
from kept.base.limits import estimate_tokens, shorten
from kept.base.remote_errors import ContextOverflow
from kept.base.values import frozen
from kept.errors import KeptError
from kept.memory import Memory
from kept.models.base import DEFAULT_CHOICE, ChatModel, ChatRequest, ModelFamily, ModelUsage, ToolSpec, Turn, get_prompt
from kept.sessions.entries import MODEL, StateEntry, TokenUsage
from kept.sessions.people import People
from kept.sessions.record import SessionRecord
from kept.sessions.spoken import Utterance, find_utterance
from kept.sessions.store import SessionStore

_MEMORY_SPECS = tuple(
    ToolSpec(tool.name, tool.description, tool.parameters)
    for tool in map(TOOLS_BY_NAME.__getitem__, ("memory_search", "memory_get", "memory_write"))
)
ATTEMPTS = 3
_HALVINGS = 3
_MIN_WINDOW = 1_000
_MAX_SCALE = 4.0
MAX_RETRY_WAIT_S = 30.0

T = TypeVar("T")


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


# calls outside of a reply


async def ask_about(
    services: AgentServices,
    purpose: Literal["flush", "summary"],
    path: str,
    piece: TranscriptPiece,
    *,
    before: str = "",
    max_tokens: int,
    **slots: str,
) -> ModelAnswer:
    """Return the whole answer to a prompt about a piece of a conversation, and a summary of what came before. Raise the
    last error if every attempt fails."""
    fence = make_fence(services.secret, f"{purpose}:{path}", [piece.text, before])
    blocks = [fence.block("summary", before, of="what came before")] if before.strip() else []
    turn = Turn.of("user", "\n".join([*blocks, fence.block("conversation", piece.text, source=path)]))
    system = get_prompt(purpose).fill(marker=fence.marker, **slots)
    request = ChatRequest(system, (turn,), max_tokens=max_tokens, purpose=purpose)

    async def ask() -> ModelAnswer:
        answer = ModelAnswer()
        async with aclosing(services.model.stream(request)) as stream:
            async for event in stream:
                answer.read(event)
        return answer

    return await retry(ask, services.retry_wait_s)


async def retry(action: Callable[[], Awaitable[T]], wait_s: float) -> T:
    """Run an action until it succeeds, fails for good, or has failed `ATTEMPTS` times."""
    backoff = Backoff(wait_s, MAX_RETRY_WAIT_S)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return await action()
        except KeptError as exc:
            if not exc.retryable or attempt == ATTEMPTS:
                raise
        await asyncio.sleep(backoff.next_s())
    raise AssertionError("the last attempt returns or raises")


async def read_in_pieces(
    messages: Sequence[LoggedMessage],
    budget_tokens: int,
    read: Callable[[TranscriptPiece], Awaitable[None]],
    *,
    halvings: int = _HALVINGS,
) -> None:
    """Call ``read`` with one piece of a conversation after the other.

    A piece that the model refuses as too long is split again. If a later piece fails, the earlier ones have been read.
    """
    for piece in split_transcript(messages, budget_tokens):
        try:
            await read(piece)
        except ContextOverflow:
            if halvings == 0:
                raise
            inside = [logged for logged in messages if piece.first_line <= logged.line <= piece.last_line]
            await read_in_pieces(inside, budget_tokens // 2, read, halvings=halvings - 1)


@frozen
class TranscriptPiece:
    """Consecutive messages of a transcript as text, with their line numbers."""

    first_line: int
    last_line: int
    text: str


def split_transcript(messages: Sequence[LoggedMessage], budget_tokens: int) -> list[TranscriptPiece]:
    """Return a conversation as text, in as few pieces as fit the budget. A message that does not fit is shown in
    part."""
    pieces: list[list[tuple[int, str]]] = []
    left = 0
    for logged in messages:
        utterance = find_utterance(logged.line, logged.entry)
        if utterance is None:
            continue
        # "L12 [2026-03-14 15:09] Ann: …". Further lines are indented.
        line = "\n  ".join(f"L{logged.line} {utterance.shown}".splitlines())
        text = shorten(line, budget_tokens, "the rest is in the transcript")
        tokens = estimate_tokens(text) + 1
        if tokens > left or not pieces:
            pieces.append([])
            left = budget_tokens
        pieces[-1].append((logged.line, text))
        left -= tokens
    return [TranscriptPiece(piece[0][0], piece[-1][0], "\n".join(text for _, text in piece)) for piece in pieces]


def spoken(messages: Sequence[LoggedMessage]) -> list[Utterance]:
    """Return what people and the agent said, for the extractive model."""
    talk = (logged for logged in messages if logged.message.role in ("user", "assistant"))
    return list(filter(None, (find_utterance(logged.line, logged.entry) for logged in talk)))


def usage_fields(usage: ModelUsage | TokenUsage) -> dict[str, int]:
    """Return usage as it is recorded in entries."""
    return {"input": usage.input, "output": usage.output}


# the model of each session: what the settings offer, and what a person chose with a command

logger = logging.getLogger(__name__)


class SessionModels:
    """Models of an agent. What is learned about a model's window is shared by all sessions that use it."""

    def __init__(self, services: AgentServices) -> None:
        self._main = services
        model = services.model
        self._family = model if isinstance(model, ModelFamily) else ModelFamily(model, {})
        self._limits: dict[int, ModelLimits] = {id(services.model): services.limits}

    def equip(self, log: SessionLog) -> AgentServices:
        """Return the services for a conversation: memory and tools as the person or group in it sees them, and its
        model. Everything that the model recalls, reads or writes goes through them."""
        memory = self._main.memory
        if log.memory is None:  # who talks in a conversation never changes
            viewer = self._main.people.viewer_of(log.key)
            log.memory = memory if viewer == memory.viewer else memory.as_person(viewer)
        services = replace(self._main, memory=log.memory)
        background = self._family.background
        if background is not None:
            services = replace(services, background=self._with_model(services, background))
        if self._family.choices:
            services = self._with_model(services, self._find_model(log.sessions.get(log.session_id)))
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
            logger.warning("session %s: its model cannot be used: %s", record.id, exc.message)
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

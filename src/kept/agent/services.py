"""Shared by all parts of an agent: its services, the limits learned about its model, and calls of the model.

A reply is streamed, and NO_REPLY, the model's way to send nothing, is removed from it. Other calls wait for the whole
answer, are retried, and read a long conversation in pieces.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeVar

from kept.clock import Backoff, Clock
from kept.config import Config
from kept.context.compaction_plan import TranscriptPiece, split_transcript
from kept.context.context import Budget, plan_budget
from kept.context.view import LoggedMessage
from kept.errors import ContextOverflow, KeptError
from kept.llm.base import (
    NO_REPLY,
    ChatModel,
    ChatRequest,
    Finished,
    ModelEvent,
    ModelUsage,
    TextDelta,
    ToolSpec,
    ToolUse,
)
from kept.memory import Memory
from kept.sessions.store import SessionStore
from kept.tools.tool_definitions import get_tool
from kept.tools.toolbox import Toolbox
from kept.values import frozen

OFFERED_TOOLS = ("memory_search", "memory_get", "memory_write")
ATTEMPTS = 3
_HALVINGS = 3
_MIN_WINDOW = 1_000
_MAX_SCALE = 4.0
_MAX_RETRY_WAIT_S = 30.0
_WRAPPING = "`'\"*_. "
_EMPTY_ANSWERS = ("", "no_reply", "no reply", "none", "nothing", "n/a")

T = TypeVar("T")


class ModelLimits:
    """Size of the model's window as the agent has learned it, in estimated tokens.

    The configured window may be larger than what the model accepts, and our token estimates are too low for some
    languages and models. Both show only in the provider's answers.
    """

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self._refused_window: int | None = None
        self._scale = 1.0

    @property
    def window(self) -> int:
        configured = self._model.context_window
        return max(_MIN_WINDOW, int(min(configured, self._refused_window or configured) / self._scale))

    def learn_refusal(self, tokens: int) -> None:
        """Lower the window: the model has refused a request of this many estimated tokens."""
        self._refused_window = max(_MIN_WINDOW, int(min(tokens, self.window) * self._scale))

    def learn_scale(self, counted: int, estimated: int) -> None:
        """Adapt the estimates to the provider's count. The scale never falls below 1: better compact early than late.

        Claude Code counts its own context, with its own prompt and tools, which says nothing about ours.
        """
        if self._model.runs_tools and counted and estimated:
            self._scale = min(_MAX_SCALE, max(1.0, counted / estimated))


@frozen
class AgentServices:
    config: Config
    memory: Memory
    sessions: SessionStore
    model: ChatModel
    toolbox: Toolbox
    clock: Clock
    limits: ModelLimits
    retry_wait_s: float
    """Delay before a failed call is retried; it doubles with each attempt."""
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """Key of the markers of data. It never leaves the process."""

    @property
    def budget(self) -> Budget:
        """Division of the model's window, in estimated tokens."""
        return plan_budget(self.limits.window, self.config.agent.compaction, self.config.agent.context)

    @property
    def flushes(self) -> bool:
        return self.config.agent.compaction.memory_flush.enabled

    def new_backoff(self) -> Backoff:
        return Backoff(self.retry_wait_s, _MAX_RETRY_WAIT_S)

    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools that a request offers to the model."""
        if not self.model.runs_tools or self.config.agent.tools.max_steps == 0:
            return ()
        tools = (get_tool(name) for name in OFFERED_TOOLS)
        return tuple(ToolSpec(tool.name, tool.description, tool.parameters) for tool in tools)


# answers


@dataclass
class ModelAnswer:
    """One answer of the model, as far as it has arrived."""

    pieces: list[str] = field(default_factory=list)
    uses: list[ToolUse] = field(default_factory=list)
    end: Finished = Finished("end", ModelUsage())
    was_shown: bool = False
    """True once text has been shown. The call can then not be repeated unnoticed."""
    _held_back: str = ""
    """End of the text, which could still become NO_REPLY."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def read(self, event: ModelEvent) -> str:
        """Take in an event, and return the text to show now."""
        shown = ""
        match event:
            case TextDelta(text):
                self.pieces.append(text)
                # Hold back a last line that could still become NO_REPLY, with the blank lines before it: if it does,
                # they would end the reply.
                text = self._held_back + text
                visible = text.rstrip()
                start = visible.rfind("\n") + 1
                may_become_no_reply = NO_REPLY.startswith(visible[start:].strip(_WRAPPING))
                end = len(visible[:start].rstrip()) if may_become_no_reply else len(visible)
                shown, self._held_back = text[:end], text[end:]
            case ToolUse():
                self.uses.append(event)
            case Finished():
                self.end = event
                shown, self._held_back = strip_no_reply(self._held_back), ""
        self.was_shown = self.was_shown or bool(shown)
        return shown


def strip_no_reply(text: str) -> str:
    """Return a text without a last line that is NO_REPLY."""
    before, _, last = text.rstrip().rpartition("\n")
    return before.rstrip() if last.strip(_WRAPPING) == NO_REPLY else text


def is_empty_answer(text: str) -> bool:
    """Return whether the answer to a flush or summary prompt is empty, in any of the words that models use for it."""
    return text.strip().strip("`'\"*_.!()[]- \n").casefold() in _EMPTY_ANSWERS


# calls outside of a reply


async def ask(services: AgentServices, request: ChatRequest) -> ModelAnswer:
    """Return the whole answer to a request. Raise the last error if every attempt fails."""

    async def ask_once() -> ModelAnswer:
        answer = ModelAnswer()
        async with aclosing(services.model.stream(request)) as stream:
            async for event in stream:
                answer.read(event)
        return answer

    return await retry(ask_once, services.new_backoff())


async def retry(action: Callable[[], Awaitable[T]], backoff: Backoff) -> T:
    """Run an action until it succeeds, fails for good, or has failed `ATTEMPTS` times."""
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


def add_usage(left: ModelUsage, right: ModelUsage) -> ModelUsage:
    return ModelUsage(left.input + right.input, left.output + right.output, left.cached + right.cached)


def usage_fields(usage: ModelUsage) -> dict[str, int]:
    """Return usage as it is recorded in entries."""
    return {"input": usage.input, "output": usage.output}

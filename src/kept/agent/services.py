"""Services that all parts of an agent share, and the limits learned about its model."""

from __future__ import annotations

import secrets
from dataclasses import field

from kept.clock import Backoff, Clock
from kept.config import Config
from kept.context.context import Budget, plan_budget
from kept.llm.base import ChatModel, ToolSpec
from kept.memory import Memory
from kept.sessions.store import SessionStore
from kept.tools.tool_definitions import get_tool
from kept.tools.toolbox import Toolbox
from kept.values import frozen

OFFERED_TOOLS = ("memory_search", "memory_get", "memory_write")
_MIN_WINDOW = 1_000
_MAX_SCALE = 4.0
_MAX_RETRY_WAIT_S = 30.0


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

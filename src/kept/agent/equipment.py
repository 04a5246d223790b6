"""What an agent works with."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from kept.clock import Clock
from kept.config import Config
from kept.context.budget import Budget, plan_budget
from kept.llm.base import ChatModel, ToolSpec
from kept.memory import Memory
from kept.sessions.store import SessionStore
from kept.tools.catalogue import get_tool
from kept.tools.toolbox import Toolbox

OFFERED = ("memory_search", "memory_get", "memory_write")
_LEAST_WINDOW = 1_000
_LARGEST_SCALE = 4.0


@dataclass(slots=True)
class AgentServices:
    config: Config
    memory: Memory
    sessions: SessionStore
    model: ChatModel
    toolbox: Toolbox
    clock: Clock
    retry_wait_s: float = 1.0
    """Before a call that failed is tried again; doubled each time."""
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """What the markers of data are made from. It never leaves the process."""
    _window: int | None = None
    _scale: float = 1.0

    @property
    def budget(self) -> Budget:
        """In tokens as we estimate them, which for some languages and models are too few."""
        window = min(self.model.context_window, self._window or self.model.context_window)
        window = max(_LEAST_WINDOW, int(window / self._scale))
        return plan_budget(window, self.config.agent.compaction, self.config.agent.context)

    def learn_window(self, tokens: int) -> None:
        """The model has refused this much, by our estimate: it takes less than was thought."""
        self._window = max(_LEAST_WINDOW, int(min(tokens, self.budget.window) * self._scale))

    def learn_scale(self, counted: int, estimated: int) -> None:
        """What the provider has counted for what we had estimated. Never less than 1: rather too early than too late.

        A program like claude counts a context of its own, with its own prompt and tools, which says nothing of ours.
        """
        if self.model.runs_tools and counted and estimated:
            self._scale = min(_LARGEST_SCALE, max(1.0, counted / estimated))

    @property
    def flushes(self) -> bool:
        return self.config.agent.compaction.memory_flush.enabled

    @property
    def has_model(self) -> bool:
        """Whether there is a model that can write: the extractive one picks sentences, which needs no prompt."""
        return self.model.provider != "extractive"

    def tool_specs(self) -> tuple[ToolSpec, ...]:
        if not self.model.runs_tools or self.config.agent.tools.max_steps == 0:
            return ()
        tools = (get_tool(name) for name in OFFERED)
        return tuple(ToolSpec(tool.name, tool.description, tool.parameters) for tool in tools)

"""What every chat model takes and gives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, Protocol

from kept.values import frozen

Purpose = Literal["reply", "flush", "summary"]
"""What a call is for. When the day's budget runs low, those that nobody waits for are the first to be refused."""


@frozen
class TextPart:
    text: str


MALFORMED = "malformed_arguments"
"""The only argument of a `ToolUse` whose arguments were not JSON: what came instead. No tool takes it, so that each
refuses the call, and the model is told."""


@frozen
class ToolUse:
    """The model asks for a tool. Also an event: it is streamed once its arguments are complete."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@frozen
class ToolOutput:
    """What the tool answered, or in what way it failed."""

    call_id: str
    text: str
    is_error: bool = False


Part = TextPart | ToolUse | ToolOutput


@frozen
class Turn:
    role: Literal["user", "assistant"]
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, role: Literal["user", "assistant"], text: str) -> Turn:
        return cls(role, (TextPart(text),))


@frozen
class ToolSpec:
    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of its arguments."""


@frozen
class ChatRequest:
    system: str
    turns: tuple[Turn, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    purpose: Purpose = "reply"


@frozen
class TextDelta:
    text: str


@frozen
class ModelUsage:
    input: int = 0
    output: int = 0
    cached: int = 0
    """Tokens of the input that the provider had seen before."""


@frozen
class Finished:
    """The last event of every stream."""

    reason: Literal["end", "tools", "length", "refused"]
    usage: ModelUsage


ModelEvent = TextDelta | ToolUse | Finished


class ChatModel(Protocol):
    provider: str
    name: str
    """The model's name as its provider knows it."""
    context_window: int
    runs_tools: bool
    """Whether it calls the tools that a request offers. One that does not is given recalled memories only."""

    def stream(self, request: ChatRequest) -> AsyncIterator[ModelEvent]:
        """Raises ModelUnavailable, ModelFailed, ContextOverflow or BudgetExhausted, the latter three possibly after
        some events; a stream that ends without one of these has ended with Finished."""
        ...

    async def close(self) -> None: ...

"""Requests and events of a chat model, and the protocol that every model implements."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Literal, Protocol

from kept.values import frozen

NO_REPLY = "NO_REPLY"
"""An answer with this text alone means that there is nothing to send or to write down."""

Purpose = Literal["reply", "flush", "summary"]
"""Reason for a call. When the day's budget runs low, flushes and summaries are refused before replies."""


@frozen
class TextPart:
    text: str


MALFORMED = "malformed_arguments"
"""Name of the only argument of a `ToolUse` whose arguments were not JSON; its value is the raw text.

No tool accepts it, so each refuses the call and the model learns why.
"""


@frozen
class ToolUse:
    """Tool call by the model. Also an event: it is streamed once its arguments are complete."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@frozen
class ToolOutput:
    """Result or error of a tool."""

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
    """Tokens of the input that the provider had cached."""


@frozen
class Finished:
    """Last event of every stream."""

    reason: Literal["end", "tools", "length", "refused"]
    usage: ModelUsage


ModelEvent = TextDelta | ToolUse | Finished


class ChatModel(Protocol):
    provider: str
    name: str
    """Name of the model at its provider."""
    context_window: int
    runs_tools: bool
    """True if it calls the tools that a request offers. A model that does not gets recalled memories only."""
    writes: bool
    """True for a language model. False for one that only picks sentences and needs no prompt."""

    def stream(self, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of one answer. Close the generator to abort the request.

        Raise ModelUnavailable, ModelFailed, ContextOverflow or BudgetExhausted, possibly after some events. A stream
        that ends without an error has ended with Finished.
        """
        ...

    async def close(self) -> None: ...

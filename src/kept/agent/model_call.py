"""Calls of the model outside of a reply: the whole answer at once, retried, and long conversations in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from kept.agent.services import AgentServices
from kept.clock import Backoff
from kept.context.compaction_plan import TranscriptPiece, split_transcript
from kept.context.view import LoggedMessage
from kept.errors import ContextOverflow, KeptError
from kept.llm.base import ChatRequest, Finished, ModelUsage, TextDelta, ToolUse
from kept.values import frozen

ATTEMPTS = 3
_HALVINGS = 3

T = TypeVar("T")


@frozen
class ModelAnswer:
    text: str
    uses: tuple[ToolUse, ...]
    usage: ModelUsage


async def ask(services: AgentServices, request: ChatRequest) -> ModelAnswer:
    """Return the answer to a request. Raise the last error if every attempt fails."""
    return await retry(lambda: _ask_once(services, request), services.new_backoff())


async def _ask_once(services: AgentServices, request: ChatRequest) -> ModelAnswer:
    pieces: list[str] = []
    uses: list[ToolUse] = []
    usage = ModelUsage()
    async with aclosing(services.model.stream(request)) as stream:
        async for event in stream:
            match event:
                case TextDelta(text):
                    pieces.append(text)
                case ToolUse():
                    uses.append(event)
                case Finished():
                    usage = event.usage
    return ModelAnswer("".join(pieces), tuple(uses), usage)


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

"""Send a request to a chat model and collect its events, without a test framework for coroutines."""

import asyncio
from typing import Any

from kept.models.base import (
    ChatModel,
    ChatRequest,
    Finished,
    ModelEvent,
    TextDelta,
    ToolSpec,
    ToolUse,
    Turn,
    part_text,
    tidy_turns,
)

SEARCH = ToolSpec(
    "memory_search",
    "Searches the notes.",
    {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)


def request(*said: str | Turn, **more: Any) -> ChatRequest:
    """Build a request from texts of the user and the assistant in turn, the user first."""
    turns = (
        one if isinstance(one, Turn) else Turn.of("assistant" if at % 2 else "user", one) for at, one in enumerate(said)
    )
    return ChatRequest(**{"system": "You are Kept.", "turns": tidy_turns(turns), **more})


def ask(model: ChatModel, asked: ChatRequest | str) -> list[ModelEvent]:
    """Return every event of one answer."""

    async def listen() -> list[ModelEvent]:
        try:
            return [event async for event in model.stream(request(asked) if isinstance(asked, str) else asked)]
        finally:
            await model.close()

    return asyncio.run(listen())


def text_of(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def tools_of(events: list[ModelEvent]) -> list[ToolUse]:
    return [event for event in events if isinstance(event, ToolUse)]


def end_of(events: list[ModelEvent]) -> Finished:
    (end,) = (event for event in events if isinstance(event, Finished))
    assert events[-1] is end
    return end


def turn_text(turn: Turn) -> str:
    """Return everything in a turn that counts towards its size."""
    return "\n".join(map(part_text, turn.parts))

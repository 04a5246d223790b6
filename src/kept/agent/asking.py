"""Asking a model something that nobody is waiting to read: the whole answer at once, tried again where that helps."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, cast

from kept.agent.equipment import AgentServices
from kept.errors import ModelError
from kept.llm.base import ChatRequest, Finished, ModelUsage, TextDelta, ToolUse
from kept.values import frozen

ATTEMPTS = 3
NO_REPLY = "NO_REPLY"
_NOTHING = ("no_reply", "no reply", "none", "nothing", "n/a")


@frozen
class ModelAnswer:
    text: str
    uses: tuple[ToolUse, ...]
    usage: ModelUsage


async def ask(equipment: AgentServices, request: ChatRequest, *, attempts: int = ATTEMPTS) -> ModelAnswer:
    """Raises the last error where none of the attempts came to an end."""
    wait_s = equipment.retry_wait_s
    for attempt in range(attempts):
        try:
            return await _ask_once(equipment, request)
        except ModelError as exc:
            if not exc.retryable or attempt + 1 == attempts:
                raise
        await asyncio.sleep(wait_s)
        wait_s *= 2
    raise AssertionError("at least one attempt is made")


async def _ask_once(equipment: AgentServices, request: ChatRequest) -> ModelAnswer:
    pieces: list[str] = []
    uses: list[ToolUse] = []
    usage = ModelUsage()
    async with aclosing(cast("Any", equipment.model.stream(request))) as stream:
        async for event in stream:
            match event:
                case TextDelta(text):
                    pieces.append(text)
                case ToolUse():
                    uses.append(event)
                case Finished():
                    usage = event.usage
    return ModelAnswer("".join(pieces), tuple(uses), usage)


def says_nothing(text: str) -> bool:
    """Whether an answer means that there is nothing to say."""
    return text.strip().strip("`'\"*_.!()[]- \n").casefold() in ("", *_NOTHING, "no_reply")


def add_usage(left: ModelUsage, right: ModelUsage) -> ModelUsage:
    return ModelUsage(left.input + right.input, left.output + right.output, left.cached + right.cached)


def usage_fields(usage: ModelUsage) -> dict[str, int]:
    return {"input": usage.input, "output": usage.output}

"""What every stream of a provider has in common: patience that ends, arguments that may not be JSON, text that may not
be text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, NoReturn

from kept.errors import ModelFailed
from kept.llm.base import MALFORMED, ChatRequest, ModelEvent, ModelUsage, TextDelta
from kept.llm.measure import count_tokens
from kept.tokens import estimate_tokens

MAX_ANSWER_CHARS = 2_000_000
"""No model says so much; a server that does is not a model."""
_LONGEST_ANSWER = 12
"""How many times the patience with silence a whole answer may take: an hour, with the timeout of five minutes."""


async def patiently(
    events: AsyncGenerator[ModelEvent | None, None], *, timeout_s: float, label: str
) -> AsyncGenerator[ModelEvent, None]:
    """The events of a stream, until nothing has come for so long. None is a sign of life and nothing to tell.

    What only keeps the line open is no sign of life: a server may do that for ever.
    """
    chars = 0
    loop = asyncio.get_running_loop()
    end_s = loop.time() + timeout_s * _LONGEST_ANSWER
    async with aclosing(events):
        while True:
            silent_until_s = loop.time() + timeout_s
            try:
                async with asyncio.timeout_at(min(silent_until_s, end_s)):
                    event = await anext(events)
            except StopAsyncIteration:
                return
            except TimeoutError:
                what = "did not finish within" if end_s < silent_until_s else "said nothing for"
                limit_s = timeout_s * _LONGEST_ANSWER if end_s < silent_until_s else timeout_s
                raise ModelFailed(
                    f"{label} {what} {limit_s:g} s.", hint="Try again, or raise model.timeout_s."
                ) from None
            if isinstance(event, TextDelta):
                chars += len(event.text)
                if chars > MAX_ANSWER_CHARS:
                    raise ModelFailed(f"{label} did not come to an end.", hint="Check model.name and model.base_url.")
            if event is not None:
                yield event


def parse_arguments(raw: str) -> Mapping[str, Any]:
    """What a tool is called with. What is no JSON object is handed on under `MALFORMED`, so that whoever runs the tool
    can tell the model, which then tries again."""
    if not raw.strip():
        return {}
    try:
        found = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return {MALFORMED: clean(raw[:2_000])}
    if found is None:
        return {}
    return found if isinstance(found, dict) else {MALFORMED: clean(raw[:2_000])}


def _refuse(word: str) -> NoReturn:
    """NaN and the infinities are no JSON, and cannot be written down as such."""
    raise ValueError(word)


def clean(text: str) -> str:
    """Half of a surrogate pair cannot be stored or shown."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text


def usage_or_estimate(used: ModelUsage, request: ChatRequest, said: str) -> ModelUsage:
    """Many compatible servers do not count."""
    if used.input or used.output:
        return used
    return ModelUsage(count_tokens(request), estimate_tokens(said))

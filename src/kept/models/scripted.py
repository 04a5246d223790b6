"""Chat model that follows a script: for tests, and for trying an agent without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing

from kept.base.limits import estimate_tokens
from kept.base.values import frozen
from kept.models.base import ChatRequest, Finished, ModelEvent, ModelUsage, TextDelta, ToolUse, count_tokens


@frozen
class Stall:
    """Pause of the model: until the event is set, or for ever."""

    until: asyncio.Event | None = None


ScriptStep = str | TextDelta | ToolUse | Finished | Stall | Exception
ScriptedAnswer = ScriptStep | Sequence[ScriptStep]
"""One step or several. Text is streamed in pieces, an exception is raised, `Finished` replaces the computed end."""
Script = Iterable[ScriptedAnswer] | Callable[[ChatRequest], ScriptedAnswer]
"""Answers in order, or a function that returns the answer to a request."""


class ScriptedChat:
    """Model that answers from a script.

    ``requests`` lists the requests so far; ``broken_off`` counts answers that were closed before their end.
    """

    provider = "scripted"
    writes = True

    def __init__(
        self,
        script: Script = (),
        *,
        name: str = "scripted",
        context_window: int = 200_000,
        runs_tools: bool = True,
        piece_chars: int = 7,
    ) -> None:
        self.name = name
        self.context_window = context_window
        self.runs_tools = runs_tools
        self.requests: list[ChatRequest] = []
        self.broken_off = 0
        self.closed = False
        self._piece_chars = piece_chars
        self.follow(script)

    def follow(self, script: Script) -> None:
        """Replace the script."""
        self._answer = script if callable(script) else _answers_in_order(script)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        answer = self._answer(request)
        steps = answer if isinstance(answer, Sequence) and not isinstance(answer, str) else [answer]
        ended = False
        try:
            async with aclosing(self._perform(steps, request)) as events:
                async for event in events:
                    ended = isinstance(event, Finished)
                    yield event
        except Exception:  # a failure that the script asks for; only cancellation counts as broken off
            ended = True
            raise
        finally:
            self.broken_off += not ended

    async def _perform(self, steps: Sequence[ScriptStep], request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        texts: list[str] = []
        tools = 0
        for step in steps:
            await asyncio.sleep(0)  # a real model lets other tasks run between two pieces
            match step:
                case Exception():
                    raise step
                case Stall(until):
                    await (until or asyncio.Event()).wait()
                case Finished():
                    yield step
                    return
                case ToolUse():
                    tools += 1
                    yield step
                case TextDelta(text):
                    texts.append(text)
                    yield step
                case str():
                    texts.append(step)
                    for start in range(0, len(step), self._piece_chars):
                        yield TextDelta(step[start : start + self._piece_chars])
        usage = ModelUsage(input=count_tokens(request), output=estimate_tokens("".join(texts)) + 10 * tools)
        yield Finished("tools" if tools else "end", usage)

    async def close(self) -> None:
        self.closed = True


def _answers_in_order(answers: Iterable[ScriptedAnswer]) -> Callable[[ChatRequest], ScriptedAnswer]:
    """Return a function that gives one answer after the other.

    If there are more calls than answers, it raises AssertionError, which the agent does not catch.
    """
    remaining = iter(answers)
    calls = 0

    def next_answer(request: ChatRequest) -> ScriptedAnswer:
        nonlocal calls
        calls += 1
        for answer in remaining:
            return answer
        raise AssertionError(f"The script has no answer to call {calls} ({request.purpose}).")

    return next_answer

"""A model that says what it was told to say: for tests, and for trying an agent without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from kept.llm.base import ChatRequest, Finished, ModelEvent, ModelUsage, TextDelta, ToolUse
from kept.llm.measure import count_tokens
from kept.tokens import estimate_tokens
from kept.values import frozen


@frozen
class Stall:
    """The model goes silent here: until the event is set, or for ever."""

    until: asyncio.Event | None = None


Step = str | TextDelta | ToolUse | Finished | Stall | Exception
Answer = Step | Sequence[Step]
"""One step or several. A text is said in pieces, an exception is raised where it stands, and `Finished` takes the place
of the end that would be worked out."""


class ScriptedChat:
    """Answers one call after the other from a list, or each from a function of its request.

    ``requests`` is what it was asked; ``broken_off`` how many of its answers nobody listened to until the end.
    """

    provider = "scripted"

    def __init__(
        self,
        answers: Iterable[Answer] | Callable[[ChatRequest], Answer] = (),
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
        self._answer = answers if callable(answers) else _in_turn(answers)
        self._piece_chars = piece_chars

    async def stream(self, request: ChatRequest) -> AsyncIterator[ModelEvent]:
        self.requests.append(request)
        answer = self._answer(request)
        steps = answer if isinstance(answer, Sequence) and not isinstance(answer, str) else [answer]
        ended = False
        try:
            async for event in self._perform(steps, request):
                ended = isinstance(event, Finished)
                yield event
        except Exception:
            ended = True
            raise
        finally:
            self.broken_off += not ended

    async def _perform(self, steps: Sequence[Step], request: ChatRequest) -> AsyncIterator[ModelEvent]:
        said: list[str] = []
        tools = 0
        for step in steps:
            await asyncio.sleep(0)  # a real model lets others run between two pieces
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
                    said.append(text)
                    yield step
                case str():
                    said.append(step)
                    for piece in _pieces(step, self._piece_chars):
                        yield TextDelta(piece)
        usage = ModelUsage(input=count_tokens(request), output=estimate_tokens("".join(said)) + 10 * tools)
        yield Finished("tools" if tools else "end", usage)

    async def close(self) -> None:
        self.closed = True


def _in_turn(answers: Iterable[Answer]) -> Callable[[ChatRequest], Answer]:
    """Whoever asks more often than the test foresaw fails it, whatever it catches."""
    left = iter(answers)
    asked = 0

    def next_answer(request: ChatRequest) -> Answer:
        nonlocal asked
        asked += 1
        for answer in left:
            return answer
        raise AssertionError(f"The script has no answer to call {asked} ({request.purpose}).")

    return next_answer


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]

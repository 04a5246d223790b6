"""Test doubles for programs that use Kept: an embedder without a model, a scripted chat model, a frozen clock, and a
storage in memory."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing

from kept.base.limits import estimate_tokens
from kept.base.records import Matrix
from kept.base.remote_errors import EmbeddingFailed
from kept.base.values import frozen
from kept.embedding.base import Calibration, Identity, Role, pack_unit_rows
from kept.models.base import ChatRequest, Finished, ModelEvent, ModelUsage, TextDelta, ToolUse, count_tokens
from kept.storage.memory_storage import MemoryStorage

__all__ = ["FakeEmbedder", "FrozenClock", "MemoryStorage", "ScriptedChat", "Stall"]

_WORD = re.compile(r"\w+")


class FakeEmbedder:
    """Embedder of hashed bags of words: texts that share words are near each other, so ranking can be tested.

    ``calls`` counts the calls, ``texts`` records the texts; set ``broken`` to make every call fail.
    """

    calibration = Calibration(floor=0.0, ceiling=1.0, weight=0.5)

    def __init__(self, *, dims: int = 64, model: str = "fake") -> None:
        self.dims = dims
        self.model = model
        self.calls = 0
        self.texts: list[str] = []
        self.broken = False

    @property
    def identity(self) -> Identity:
        return Identity("fake", self.model, self.dims, "1")

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        self.calls += 1
        if self.broken:
            raise EmbeddingFailed("The embedder is broken.")
        self.texts.extend(texts)
        return pack_unit_rows((self._bag(text) for text in texts), self.dims)

    def _bag(self, text: str) -> list[float]:
        bag = [0.0] * self.dims
        for word in _WORD.findall(text.lower()):
            digest = hashlib.sha256(word.encode()).digest()
            bag[int.from_bytes(digest[:4], "big") % self.dims] += 1.0 if digest[4] % 2 else -1.0
        return bag


class FrozenClock:
    """Clock that shows one moment until `move` advances it."""

    def __init__(self, now: dt.datetime | None = None) -> None:
        self._now = now or dt.datetime(2026, 3, 14, 15, 9, 26).astimezone()

    def now(self) -> dt.datetime:
        return self._now

    def time_ns(self) -> int:
        return int(self._now.timestamp() * 1_000_000_000)

    def move(self, **amount: float) -> None:
        """Advance the clock by the arguments of a `timedelta`: ``clock.move(hours=2)``."""
        self._now += dt.timedelta(**amount)


# a chat model that follows a script


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

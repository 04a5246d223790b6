"""Responses that are read within limits. Importing this needs httpx2."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import httpx2

from kept.errors import ModelFailed
from kept.llm.bounded import HINT, AnswerLimits, BoundedAnswer


def bounding(label: str, limits: AnswerLimits) -> Callable[[httpx2.Response], Awaitable[None]]:
    """Return a hook that bounds what is read of a response."""

    async def bound(response: httpx2.Response) -> None:
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        encoding = response.headers.get("content-encoding", "identity")
        response.stream = _BoundedStream(stream, label, limits, encoding)

    return bound


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, label: str, limits: AnswerLimits, encoding: str) -> None:
        self._stream = stream
        self._label = label
        self._limits = limits
        self._encoding = encoding

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._encoding != "identity":
            # It was not asked for, and a few bytes can unpack to any number.
            raise ModelFailed(f"{self._label} sent a compressed answer ({self._encoding}).", hint=HINT)
        answer = BoundedAnswer(self._label, self._limits)
        async for piece in self._stream:
            answer.add(piece)
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()

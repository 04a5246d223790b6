"""Asking the model once, and what came of it so far."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast

from kept.agent.events import ReplyDelta
from kept.agent.quiet import NoReplyFilter
from kept.llm.base import ChatModel, ChatRequest, Finished, ModelUsage, TextDelta, ToolUse


class ModelStep:
    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.pieces: list[str] = []
        self.uses: list[ToolUse] = []
        self.end = Finished("end", ModelUsage())
        self.given_out = False
        """Whether somebody has seen part of it: it can then not be asked for again as if nothing had happened."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    async def listen(self, model: ChatModel, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        """Asks, from the beginning, and gives out what may be shown as it is written."""
        self._begin()
        quiet = NoReplyFilter()
        async with aclosing(cast("Any", model.stream(request))) as stream:
            async for event in stream:
                match event:
                    case TextDelta(text):
                        self.pieces.append(text)
                        if shown := quiet.feed(text):
                            self.given_out = True
                            yield ReplyDelta(shown)
                    case ToolUse():
                        self.uses.append(event)
                    case Finished():
                        self.end = event
        if rest := quiet.finish():
            self.given_out = True
            yield ReplyDelta(rest)

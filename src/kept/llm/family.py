"""The models of one agent: the one that replies, those that a session may choose, and one for the background."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Mapping

from kept.llm.base import ChatModel, ChatRequest, ModelEvent, ModelWrapper

DEFAULT_CHOICE = "default"


class ModelFamily(ModelWrapper):
    """Chat model that replies, with its alternatives. A choice is opened when it is first used."""

    def __init__(
        self,
        main: ChatModel,
        choices: Mapping[str, Callable[[], ChatModel]],
        *,
        background: ChatModel | None = None,
    ) -> None:
        super().__init__(main)
        self.main = main
        self.background = background
        self._open_choice = choices
        self._opened: dict[str, ChatModel] = {}
        self._lock = threading.Lock()

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(self._open_choice)

    def find(self, choice: str | None) -> ChatModel | None:
        """Return the model of a choice, or None if the settings have no such choice. May raise ModelUnavailable."""
        if choice is None or choice not in self._open_choice:
            return None
        with self._lock:
            if choice not in self._opened:
                self._opened[choice] = self._open_choice[choice]()
            return self._opened[choice]

    def stream(self, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        return self.main.stream(request)

    async def close(self) -> None:
        for model in (self.main, self.background, *self._opened.values()):
            if model is not None:
                await model.close()

"""Site: the memory and the conversations that the pages show, and the live index behind them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from kept.base.values import frozen
from kept.config import LoadedConfig
from kept.memory import Memory
from kept.notes.change_recorder import Author
from kept.sessions.store import SessionStore

if TYPE_CHECKING:
    from kept.models.base import ChatModel
    from kept.server.live import LiveIndex
    from kept.server.web.web_chat import WebChat


POLL_S = 1.0
"""Time between two looks at the state of the memory, for pages that follow it."""

T = TypeVar("T")


@frozen
class IndexingState:
    """Progress of the index, for pages."""

    completed: int
    total: int

    @property
    def percent(self) -> int:
        return 100 * self.completed // self.total if self.total else 0


class Site:
    """Everything that the pages of one agent need. Safe to share between threads."""

    def __init__(
        self, loaded: LoadedConfig, memory: Memory, sessions: SessionStore, *, model: ChatModel | None = None
    ) -> None:
        """``model`` answers in the chat instead of the configured one."""
        self.loaded = loaded
        self.memory = memory
        self.sessions = sessions
        self.config = memory.config
        self.live: LiveIndex | None = None
        self.poll_s = POLL_S
        self.is_stopping: Callable[[], bool] = lambda: False
        """Returns whether the server is about to stop. Streams end then, and do not delay it."""
        self._model = model
        self._remembered: dict[str, tuple[float, Any]] = {}

    @cached_property
    def chat(self) -> WebChat:
        """Conversations with the agent. Only for the event loop of the server."""
        from kept.server.web.web_chat import WebChat

        return WebChat(self, self._model)

    async def close_chat(self) -> None:
        """Stop answers that are being written. To be called in the event loop, before `close`."""
        if "chat" in vars(self):
            await self.chat.close()

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()
        self.memory.close()
        self.sessions.close()

    def remember(self, name: str, load: Callable[[Site], T], *, for_s: float) -> T:
        """Return what was loaded under a name in the last seconds, or load it."""
        until, value = self._remembered.get(name, (0.0, None))
        if time.monotonic() >= until:
            value = load(self)
            self._remembered[name] = (time.monotonic() + for_s, value)
        loaded: T = value
        return loaded

    @property
    def author(self) -> Author:
        """The author of changes that a person makes on a page."""
        return Author(self.config.agent_id, tool="kept web")

    def indexing(self) -> IndexingState | None:
        """Return the progress of the running sync if it is a long one, or None."""
        state = self.live.state() if self.live else None
        if state is None or not state.syncing or state.total < _LONG_SYNC:
            return None
        return IndexingState(state.completed, state.total)


_LONG_SYNC = 20
"""Files from which the progress of a sync is shown."""

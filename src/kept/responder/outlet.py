"""A channel, as the responder sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Channel(Protocol):
    pushes: bool
    """Whether replies have to be sent. Otherwise they lie ready and are fetched, as often as somebody likes."""
    limit: int | None
    """How long a part may be, as ``measure`` counts."""
    debounce_ms: int

    def measure(self, text: str) -> int: ...

    async def send(self, to: Mapping[str, Any], text: str) -> None:
        """Sends one part. ``to`` is the metadata of the message that is answered.

        Raises NotSent where it certainly did not leave and DeliveryRefused where it never will. Whatever else goes
        wrong means that nobody knows, and it is not sent again.
        """
        ...

    async def show_typing(self, to: Mapping[str, Any]) -> None:
        """Tells the person that an answer is on its way, for the next few seconds. Never fails."""
        ...


class PullChannel:
    """An outlet whose replies are fetched. Nothing is ever sent."""

    pushes = False
    limit: int | None = None

    def __init__(self, *, debounce_ms: int = 0) -> None:
        self.debounce_ms = debounce_ms

    def measure(self, text: str) -> int:
        return len(text)

    async def send(self, to: Mapping[str, Any], text: str) -> None:
        raise AssertionError("nothing is sent here")

    async def show_typing(self, to: Mapping[str, Any]) -> None:
        return

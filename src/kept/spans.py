"""Spans: what a search, a sync, a call of a model or of a tool took. Nobody watches them unless a server asks for it.

A span has a name and attributes: numbers, flags, and names of tools and models. Never a text, a query or a person.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a cold search imports this module, and needs none of it
    from types import TracebackType
    from typing import Literal, Protocol

    SpanName = Literal["request", "search", "sync", "model_call", "tool_call"]
    Attribute = str | int | float | bool

    class SpanObserver(Protocol):
        """Receives every span of this process, in the thread or task that it is in."""

        def begin(self, name: SpanName, attributes: dict[str, Attribute]) -> object:
            """Return something that `end` gets back."""
            ...

        def end(
            self,
            ticket: object,
            name: SpanName,
            attributes: dict[str, Attribute],
            took_s: float,
            error: BaseException | None,
        ) -> None: ...


class SpanHandle:
    """Something that is measured by nobody. Attributes may be set until it ends."""

    def set(self, **attributes: Attribute) -> None:
        pass

    def __enter__(self) -> SpanHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class WatchedSpan(SpanHandle):
    def __init__(self, name: SpanName, attributes: dict[str, Attribute]) -> None:
        self._name = name
        self._attributes = attributes

    def set(self, **attributes: Attribute) -> None:
        self._attributes.update(attributes)

    def __enter__(self) -> WatchedSpan:
        self._tickets = [(observer, observer.begin(self._name, self._attributes)) for observer in _observers]
        self._started_s = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        took_s = time.perf_counter() - self._started_s
        for observer, ticket in reversed(self._tickets):
            observer.end(ticket, self._name, self._attributes, took_s, error)


_UNWATCHED = SpanHandle()
_observers: tuple[SpanObserver, ...] = ()


def span(name: SpanName, **attributes: Attribute) -> SpanHandle:
    """Return a span for a ``with`` block."""
    return WatchedSpan(name, attributes) if _observers else _UNWATCHED


def watch_spans(observer: SpanObserver) -> None:
    """Pass all spans of this process to an observer from now on."""
    global _observers
    _observers = (*_observers, observer)


def unwatch_spans(observer: SpanObserver) -> None:
    global _observers
    _observers = tuple(known for known in _observers if known is not observer)

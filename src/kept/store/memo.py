"""Values that were worked out from the index, until it changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

_MAX_REMEMBERED = 20_000

T = TypeVar("T")


class StateMemo:
    """Values by key, of one state of the index."""

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}
        self._state: Hashable = None

    def find(self, state: Hashable) -> dict[Hashable, Any]:
        """Return the values of a state. Those of another one are dropped."""
        if state != self._state or len(self._values) >= _MAX_REMEMBERED:
            self._values, self._state = {}, state
        return self._values

    def remember(self, state: Hashable, key: Hashable, work_out: Callable[[], T]) -> T:
        """Return a value that was worked out in this state, or work it out."""
        values = self.find(state)
        if key not in values:
            values[key] = work_out()
        value: T = values[key]
        return value

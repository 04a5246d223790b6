"""Time, as something that can be handed in: tests freeze it, nothing else does."""

from __future__ import annotations

import datetime as dt
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> dt.datetime:
        """The local time, with its offset."""
        ...

    def time_ns(self) -> int: ...


class SystemClock:
    def now(self) -> dt.datetime:
        return dt.datetime.now().astimezone()

    def time_ns(self) -> int:
        return time.time_ns()

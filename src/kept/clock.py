"""Time, as something that can be handed in: tests freeze it, nothing else does. And ids."""

from __future__ import annotations

import datetime as dt
import os
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


def new_id() -> str:
    """Return 64 random bits in hexadecimal: P(collision) is about 3e-8 for a million ids."""
    return os.urandom(8).hex()  # importing `secrets` would cost `kept add` 10 ms

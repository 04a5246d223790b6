"""Time as a value that is passed in, so that tests can freeze it, and random ids."""

from __future__ import annotations

import datetime as dt
import os
import time
from typing import Protocol

DAY_MS = 86_400_000


class Clock(Protocol):
    """Source of the current time."""

    def now(self) -> dt.datetime:
        """Return the local time with its UTC offset."""
        ...

    def time_ns(self) -> int:
        """Return nanoseconds since 1970, like `time.time_ns`."""
        ...


class SystemClock:
    """Clock of the machine."""

    def now(self) -> dt.datetime:
        return dt.datetime.now().astimezone()

    def time_ns(self) -> int:
        return time.time_ns()


def new_id() -> str:
    """Return 64 random bits in hexadecimal: P(collision) is about 3e-8 for a million ids."""
    return os.urandom(8).hex()  # importing `secrets` would cost `kept add` 10 ms

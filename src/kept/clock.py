"""Time as a value that is passed in, so that tests can freeze it, and random ids."""

from __future__ import annotations

import datetime as dt
import secrets
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
    """Return sixteen random hexadecimal digits. The chance of a duplicate among a million is one in thirty million."""
    return secrets.token_hex(8)

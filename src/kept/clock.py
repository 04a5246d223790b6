"""Time, as something that can be handed in: tests freeze it, nothing else does. And ids."""

from __future__ import annotations

import datetime as dt
import secrets
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
    """Sixteen hexadecimal digits: among a million of them two are alike once in thirty million times."""
    return secrets.token_hex(8)

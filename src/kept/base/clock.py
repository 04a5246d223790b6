"""Time as a value that is passed in, so that tests can freeze it; random ids; delays between attempts."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable
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

    time_ns = staticmethod(time.time_ns)


def utc_now(clock: Clock, *, to_the_second: bool = False) -> dt.datetime:
    """Return the time of a clock in UTC."""
    now = clock.now().astimezone(dt.UTC)
    return now.replace(microsecond=0) if to_the_second else now


def new_id() -> str:
    """Return 64 random bits in hexadecimal: P(collision) is about 3e-8 for a million ids."""
    return os.urandom(8).hex()  # importing `secrets` would cost `kept add` 10 ms


class Backoff:
    """Delays between attempts: each twice as long as the last, up to ``longest_s``.

    It hands out delays and never sleeps, so the caller chooses between `time.sleep` and `asyncio.sleep`, and tests
    need no clock:

        backoff = Backoff(0.5, 8.0)
        while True:
            try:
                return send()
            except Busy:
                await asyncio.sleep(backoff.next_s())

    Half of each delay is random, so that clients turned away together do not return together.
    """

    def __init__(self, first_s: float, longest_s: float, *, random: Callable[[], float] | None = None) -> None:
        self._first_s = self._delay_s = first_s
        self._longest_s = longest_s
        if random is None:
            from random import random as random_share  # imported here: it would cost every search a few milliseconds

            random = random_share
        self._random = random

    def next_s(self) -> float:
        """Return the delay before the next attempt, in seconds."""
        delay_s = min(self._longest_s, self._delay_s)
        self._delay_s = 2 * delay_s
        return delay_s * (1 + self._random()) / 2

    def reset(self) -> None:
        """Start again at the first delay. Call it after a success."""
        self._delay_s = self._first_s

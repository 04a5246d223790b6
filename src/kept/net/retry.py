"""Timeouts, retries, and the circuit breaker that leaves a dead endpoint alone."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from kept.clock import Backoff
from kept.errors import EndpointDown
from kept.values import frozen

LONGEST_RETRY_AFTER_S = 60.0
OPEN_S = 60.0


@frozen
class Timeouts:
    """Limits of one call: an attempt from first to last byte, and all attempts with the pauses between them."""

    attempt_s: float
    total_s: float


QUERY_TIMEOUTS = Timeouts(60.0, 60.0)
"""For queries, for which a user waits: an attempt that used up the time is not repeated."""
DOCUMENT_TIMEOUTS = Timeouts(120.0, 480.0)


@frozen
class RetryPolicy:
    """Number of attempts and their delays, with the clock and the random source. Tests hand in their own clock."""

    attempts: int = 3
    first_delay_s: float = 0.5
    longest_delay_s: float = 8.0
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    random: Callable[[], float] = random.random

    def backoff(self) -> Backoff:
        return Backoff(self.first_delay_s, self.longest_delay_s, random=self.random)


class CircuitBreaker:
    """Endpoints that are down. Calls to them fail at once, so that one outage costs one wait, not one per search."""

    def __init__(self, open_s: float = OPEN_S) -> None:
        self._open_s = open_s
        self._down: dict[str, tuple[float, str]] = {}

    def check(self, endpoint: str, *, now_s: float) -> None:
        """Raise EndpointDown while the circuit of an endpoint is open."""
        until_s, reason = self._down.get(endpoint, (now_s, ""))
        if now_s < until_s:
            raise EndpointDown(
                f"{reason} It is not called again for {until_s - now_s:.0f} s.",
                hint="Check that the service is running and that the network is up.",
            )

    def trip(self, endpoint: str, reason: str, *, now_s: float) -> None:
        self._down[endpoint] = (now_s + self._open_s, reason)

    def reset(self, endpoint: str) -> None:
        self._down.pop(endpoint, None)

    def reset_all(self) -> None:
        self._down.clear()


BREAKER = CircuitBreaker()
"""Default breaker of clients that are not handed one, so that all memories of a process share it."""

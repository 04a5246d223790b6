"""How long to wait, how often to try, and when to leave an endpoint alone."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from kept.errors import EndpointDown
from kept.values import frozen

TRIES = 3
FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 8.0
LONGEST_RETRY_AFTER_S = 60.0
REST_S = 60.0


@frozen
class Patience:
    """How long one attempt may take from first to last byte, and how long all of them with the pauses between."""

    attempt_s: float
    total_s: float


QUERY = Patience(60.0, 60.0)
"""Somebody waits for the answer to a query: an attempt that used up the time is not followed by another."""
DOCUMENTS = Patience(120.0, 480.0)


@frozen
class Pace:
    """Time and chance, as something that can be handed in."""

    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    random: Callable[[], float] = random.random


class Breaker:
    """Remembers which endpoints are down, so that they are not waited for again and again."""

    def __init__(self, rest_s: float = REST_S) -> None:
        self._rest_s = rest_s
        self._down: dict[str, tuple[float, str]] = {}

    def check(self, endpoint: str, *, now_s: float) -> None:
        until, why = self._down.get(endpoint, (now_s, ""))
        if now_s < until:
            raise EndpointDown(
                f"{why} It is not asked again for {until - now_s:.0f} s.",
                hint="Check that the service is running and that the network is up.",
            )

    def trip(self, endpoint: str, why: str, *, now_s: float) -> None:
        self._down[endpoint] = (now_s + self._rest_s, why)

    def reset(self, endpoint: str) -> None:
        self._down.pop(endpoint, None)


BREAKER = Breaker()
"""The one of this process."""

"""Time for tests of retries and timeouts: sleeping returns at once."""

from __future__ import annotations

from kept import net


class FakePace:
    """Record each sleep and move the clock forward by it."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.now_s = 1000.0

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds

    def pace(self) -> net.RetryPolicy:
        return net.RetryPolicy(
            sleep=self.sleep, monotonic=lambda: self.now_s, now=lambda: self.now_s, random=lambda: 1.0
        )

"""Time for tests: pauses that return at once, and the name of the current day."""

import datetime as dt

from kept.base import net


class FakePace:
    """Record each sleep and move the clock forward by it."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.now_s = 1000.0

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds

    def pace(self) -> net.RetryPolicy:
        return net.RetryPolicy(sleep=self.sleep, monotonic=lambda: self.now_s, random=lambda: 1.0)


def today() -> str:
    """Return the date of now. A constant would be wrong in a run that goes past midnight."""
    return f"{dt.date.today()}"

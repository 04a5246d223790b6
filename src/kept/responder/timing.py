"""Delays and limits of the responder and its channels, in one value that can be handed in."""

from __future__ import annotations

from kept.clock import Backoff
from kept.values import frozen


@frozen
class ResponderTiming:
    first_retry_s: float = 1.0
    longest_retry_s: float = 60.0
    typing_s: float = 4.0
    """Interval at which a channel shows that an answer is being written."""
    max_attempts: int = 25
    """Attempts at one answer, across restarts: a message that crashes the process every time is given up."""

    def backoff(self) -> Backoff:
        return Backoff(self.first_retry_s, self.longest_retry_s)

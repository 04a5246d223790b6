"""Limits of an answer over HTTP, and of an event in it.

The providers' libraries join an event from its lines and copy it each time, so an endless event would take quadratic
time. It must not reach them.
"""

from __future__ import annotations

from kept.errors import ModelFailed
from kept.values import frozen

HINT = "Check model.name and model.base_url."
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_TAIL_BYTES = max(map(len, _EVENT_ENDS)) - 1


@frozen
class AnswerLimits:
    total_bytes: int = 64_000_000
    event_bytes: int = 4_000_000
    event_lines: int = 1_000


class BoundedAnswer:
    """Counts an answer piece by piece. Raises ModelFailed once a limit is exceeded."""

    def __init__(self, label: str, limits: AnswerLimits) -> None:
        self._label = label
        self._limits = limits
        self._total = 0
        self._event = 0
        self._lines = 0
        self._tail = b""

    def add(self, piece: bytes) -> None:
        seam = self._tail + piece  # an event may end between two pieces
        end = max(seam.rfind(sign) + len(sign) if sign in seam else 0 for sign in _EVENT_ENDS)
        begun = seam[end:] if end else piece
        self._total += len(piece)
        self._event = len(begun) + (0 if end else self._event)
        self._lines = begun.count(b"\n") + begun.count(b"\r") + (0 if end else self._lines)
        self._tail = seam[-_TAIL_BYTES:]
        if self._is_too_long():
            raise ModelFailed(f"{self._label} sent more than can be an answer.", hint=HINT)

    def _is_too_long(self) -> bool:
        limits = self._limits
        return self._total > limits.total_bytes or self._event > limits.event_bytes or self._lines > limits.event_lines

"""Waiting for what happens in other threads and processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 60.0


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """What the condition gives as soon as it gives something; a busy machine has a minute for it."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"waited {PATIENCE_S:.0f} s in vain: {what}")

"""Wait for something that happens in another thread, task or process."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 60.0
"""How long a test waits for something that should happen at once, on a busy machine."""


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """Return the condition's result as soon as it is true. ``what`` describes it in the failure message."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.01)
    raise AssertionError(f"waited {PATIENCE_S:.0f} s in vain: {what}")


async def wait_until_async(condition: Callable[[], bool]) -> None:
    """Let other tasks run until the condition is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)

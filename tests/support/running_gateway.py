"""A gateway that runs in this process while a test talks to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kept import Memory, SessionStore
from kept.channels.gateway import Gateway
from kept.testing import ScriptedChat
from tests.support.responders import asked
from tests.support.waiting import wait_until_async


@asynccontextmanager
async def running_gateway(
    memory: Memory, model: Any = None, **options: Any
) -> AsyncIterator[tuple[Gateway, SessionStore, list[str]]]:
    """Run the gateway of a memory. Yield it with its conversations and the lines that it has printed, and close all."""
    sessions = SessionStore(memory.config)
    lines: list[str] = []
    model = model or ScriptedChat(lambda request: f"You said: {asked(request)}")
    gateway = Gateway(memory, sessions, model, report=lines.append, **options)
    running = asyncio.create_task(gateway.run())
    try:
        await wait_until_async(lambda: bool(lines) or running.done())
        if running.done() and not lines:
            running.result()
        yield gateway, sessions, lines
    finally:
        gateway.stop()
        if not running.done():
            await asyncio.wait([running])
        memory.close()
        sessions.close()
    running.result()

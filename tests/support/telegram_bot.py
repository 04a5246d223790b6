"""A gateway with the Telegram channel, in the test's own process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from kept import Memory, SessionStore
from kept.channels.gateway import Gateway
from kept.responder.channel import ResponderTiming
from kept.testing import ScriptedChat
from tests.support.responders import asked
from tests.support.telegram_server import TOKEN, BotApi
from tests.support.waiting import wait_until_async
from tests.support.workspaces import open_memory


class Bot:
    """A running gateway and everything that it needs."""

    def __init__(self, gateway: Gateway, memory: Memory, sessions: SessionStore, lines: list[str]) -> None:
        self.gateway = gateway
        self.inbox = gateway.responder.inbox
        self.memory = memory
        self.sessions = sessions
        self.lines = lines


@asynccontextmanager
async def bot(
    tmp_path, api: BotApi, model=None, *, token=TOKEN, agent_settings=None, preview_after_s=3_600.0, **settings
):
    """Run a gateway that talks to the Bot API server. ``settings`` are those below `gateway`."""
    settings = {
        "gateway.http.enabled": False,
        "gateway.telegram.token": token,
        "gateway.telegram.base_url": api.url,
        "gateway.telegram.allow_users": "7,@grace",
        "gateway.auto_responder.debounce_ms": 0,
        **{f"gateway.{name}": value for name, value in settings.items()},
        **(agent_settings or {}),
    }
    memory = open_memory(tmp_path, settings=settings)
    sessions = SessionStore(memory.config)
    timing = ResponderTiming(first_retry_s=0.0, longest_retry_s=0.0, preview_after_s=preview_after_s)
    lines: list[str] = []
    model = model or ScriptedChat(lambda request: f"You lines: {asked(request)}")
    gateway = Gateway(memory, sessions, model, report=lines.append, timing=timing)
    running = asyncio.create_task(gateway.run())
    try:
        await wait_until_async(lambda: bool(lines) or running.done())
        yield Bot(gateway, memory, sessions, lines)
    finally:
        gateway.stop()
        if not running.done():
            await asyncio.wait([running])
        memory.close()
        sessions.close()
    running.result()

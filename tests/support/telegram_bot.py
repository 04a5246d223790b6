"""A gateway with the Telegram channel, in the test's own process."""

from contextlib import asynccontextmanager

from kept import Memory, SessionStore
from kept.gateway.channel import ResponderTiming
from kept.gateway.channels.gateway import Gateway
from tests.support.running_gateway import running_gateway
from tests.support.telegram_server import TOKEN, BotApi
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
async def bot(tmp_path, api: BotApi, model=None, *, token=TOKEN, agent_settings=None, progress_s=2.0, **settings):
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
    timing = ResponderTiming(first_retry_s=0.0, longest_retry_s=0.0, progress_s=progress_s)
    async with running_gateway(memory, model, timing=timing) as (gateway, sessions, lines):
        yield Bot(gateway, memory, sessions, lines)

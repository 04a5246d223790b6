"""A gateway that runs in this process while a test talks to it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import replace
from typing import Any

from kept import Memory, SessionStore
from kept.agent.tools.toolbox import Toolbox
from kept.base.net.serving import ServerLimits
from kept.config import load_config
from kept.gateway.app import open_dispatcher
from kept.gateway.channels.gateway import Gateway
from kept.gateway.dispatcher import Dispatcher
from kept.server.run_server import Server, gateway_preset, listen, open_tokens
from kept.testing import ScriptedChat
from tests.support.responders import asked
from tests.support.waiting import wait_until_async


def is_channel(line: str) -> bool:
    """Return whether a line of the gateway tells that a channel is open."""
    return line.startswith(("HTTP: ", "Telegram", "Discord"))


@asynccontextmanager
async def running_gateway(
    memory: Memory,
    model: Any = None,
    *,
    limits: ServerLimits | None = None,
    sessions: SessionStore | None = None,
    others: Sequence[Dispatcher] = (),
    **options: Any,
) -> AsyncIterator[tuple[Gateway, SessionStore, list[str]]]:
    """Run the gateway of a memory as `kept gateway` does. Yield it with its conversations and the lines that it has
    printed, and close all."""
    config, sessions = memory.config, sessions or SessionStore(memory.config)
    lines: list[str] = []
    model = model or ScriptedChat(lambda request: f"You said: {asked(request)}")
    preset = gateway_preset(config)
    with ExitStack() as opened:
        opened.callback(memory.close)
        opened.callback(sessions.close)
        agents = [open_dispatcher(memory, sessions, model), *others]
        gateway = Gateway(agents, report=lines.append, **options)
        opened.callback(gateway.leases.close)
        bound = None
        if preset.listens:
            bound = opened.enter_context(closing(listen(preset)))
        server = Server(
            replace(load_config(home=config.home), config=config),
            preset,
            {config.agent_id: Toolbox(memory, sessions)},
            open_tokens(config, preset),
            bound,
            gateway=gateway,
            limits=limits or ServerLimits(),
        )
        running = asyncio.create_task(server.run(lambda address: lines.append(f"HTTP: {address.url}v1/messages")))
        try:
            await wait_until_async(lambda: any(map(is_channel, lines)) or running.done())
            if running.done() and not any(map(is_channel, lines)):
                running.result()
            yield gateway, sessions, lines
        finally:
            gateway.stop()
            if not running.done():
                await asyncio.wait([running])
    running.result()

"""The gateway: every channel that is configured, in front of one responder."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.channels import http
from kept.channels.http_server import listen, make_server
from kept.channels.telegram import TelegramChannel, find_token
from kept.config import Config, LoadedConfig
from kept.durable import make_private_folder
from kept.errors import ConfigError, LockBusy, WriteFailed
from kept.lock import locked
from kept.net.serving import ServerLimits
from kept.responder.answerer import Answerer
from kept.responder.inbox import Inbox
from kept.responder.outlet import Fetched, Outlet
from kept.responder.responder import Responder
from kept.responder.state import inbox_path

if TYPE_CHECKING:
    import uvicorn

    from kept.llm.base import ChatModel

Say = Callable[[str], None]

_SESSION_AGE = "gateway.auto_responder.session_max_age_ms"

log = logging.getLogger(__name__)


@contextmanager
def only_gateway(home: str) -> Iterator[None]:
    """Two gateways would answer every message twice."""
    try:
        make_private_folder(home)
    except OSError as exc:
        raise WriteFailed(f"{home}: could not be made ({exc.strerror}).") from exc
    try:
        with locked(os.path.join(home, "gateway.lock"), wait_s=0, purpose="running the gateway"):
            yield
    except LockBusy as exc:
        if "running the gateway" not in exc.message:
            raise
        hint = "Stop it, or give this one another --home."
        raise LockBusy(f"A gateway is running for {home} already.", hint=hint) from exc


def with_session_age(loaded: LoadedConfig) -> LoadedConfig:
    """What the gateway's own setting says about when a conversation begins anew, where it is set."""
    if _SESSION_AGE not in loaded.origins:
        return loaded
    age_ms = loaded.config.gateway.auto_responder.session_max_age_ms
    reset = loaded.config.agent.session.reset
    if age_ms:
        reset = replace(reset, mode="idle", idle_minutes=max(1, -(-age_ms // 60_000)))
    else:
        reset = replace(reset, mode="none")
    agent = replace(loaded.config.agent, session=replace(loaded.config.agent.session, reset=reset))
    return replace(loaded, config=replace(loaded.config, agent=agent))


class Gateway:
    """Answers until it is told to stop."""

    def __init__(self, config: Config, answerer: Answerer, *, say: Say, limits: ServerLimits | None = None) -> None:
        self._config = config
        self._limits = limits or ServerLimits()
        self._settings = config.gateway
        self._say = say
        self._stop = asyncio.Event()
        self._at_once = asyncio.Event()
        self._telegram = TelegramChannel(config) if find_token(config) else None
        outlets: dict[str, Outlet] = {}
        if self._settings.http.enabled:
            outlets[http.NAME] = Fetched(debounce_ms=self._settings.http.debounce_ms)
        if self._telegram:
            outlets["telegram"] = self._telegram
        if not outlets:
            raise ConfigError("No channel is configured.", hint="Set gateway.http.enabled or gateway.telegram.token.")
        inbox = Inbox(inbox_path(config), clock=answerer.memory.clock)
        self.responder = Responder(answerer, inbox, self._settings.auto_responder, outlets)
        answerer.commands.more_status = self.responder.status_lines

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        server, serving = self._start_http()
        tasks = [serving] if serving else []
        try:
            await self.responder.start()
            if self._telegram:
                tasks.append(asyncio.create_task(self._serve_telegram(self._telegram)))
            await self._until_stopped(tasks)
        finally:
            await self._shut_down(server, tasks)

    def stop(self) -> None:
        """Finishes what was accepted. Told twice, it leaves that to the next start."""
        if self._stop.is_set():
            self._at_once.set()
        self._stop.set()

    def _start_http(self) -> tuple[uvicorn.Server | None, asyncio.Task[None] | None]:
        settings = self._settings.http
        if not settings.enabled:
            return None, None
        app = http.make_app(self.responder, settings, agent_id=self._config.agent_id, clock=self.responder.inbox.clock)
        server = make_server(app, self._limits)
        bound = listen(settings)
        host, port = bound.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        self._say(f"HTTP: http://{shown}:{port}/v1/messages{', with a token' if settings.token else ''}")
        return server, asyncio.create_task(server.serve(sockets=[bound]))

    async def _serve_telegram(self, channel: TelegramChannel) -> None:
        name = await channel.connect()
        self._say(f"Telegram: {name}, for {len(channel.allowed)} people")
        await channel.serve(self.responder)

    async def _until_stopped(self, tasks: list[asyncio.Task[None]]) -> None:
        """Returns when it was told to stop; a channel that fails for good takes the others down with it."""
        stopped = asyncio.create_task(self._stop.wait())
        done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        for task in done:
            if task is not stopped:
                task.result()

    async def _shut_down(self, server: uvicorn.Server | None, tasks: list[asyncio.Task[None]]) -> None:
        """No more is taken in; replies still go out; then the doors are closed."""
        fetching = tasks[1:] if server else tasks
        for task in fetching:
            task.cancel()
        if fetching:
            await asyncio.wait(fetching)
        finished = await self.responder.drain(self._settings.shutdown_timeout_s, at_once=self._at_once)
        if server:
            server.should_exit = True
            await asyncio.wait(tasks[:1])
        if self._telegram:
            await self._telegram.close()
        left = self.responder.room.taken
        self._say("Stopped." if finished else f"Stopped. What is left ({left}) is answered after the next start.")


OpenModel = Callable[[LoadedConfig], "ChatModel"]


def run_gateway(loaded: LoadedConfig, open_model: OpenModel, *, say: Say) -> None:
    """Serves until SIGTERM or Ctrl-C."""
    from kept.app import open_answerer, open_memory, open_sessions
    from kept.live import LiveIndex

    loaded = with_session_age(loaded)
    config = loaded.config
    if not config.gateway.auto_responder.enabled:
        raise ConfigError("gateway.auto_responder.enabled is false.", hint="Nobody would be answered. Set it to true.")
    with only_gateway(config.home):
        model = open_model(loaded)

        async def serve() -> None:
            try:
                await Gateway(config, open_answerer(memory, sessions, model), say=say).run()
            finally:
                await model.close()

        # Notes that are edited while it runs are taken in before anybody asks for them.
        with open_memory(loaded) as memory, LiveIndex(memory), open_sessions(loaded) as sessions:
            asyncio.run(serve())

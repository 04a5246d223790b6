"""`kept serve`: MCP, the HTTP channel and the pages behind one port, until a signal arrives."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from kept.agent.services import load_secret
from kept.automatic_sync import automatic_sync
from kept.channels import http
from kept.channels.gateway import OpenModel, served_agents, with_session_age
from kept.clock import SystemClock
from kept.config import Config, LoadedConfig
from kept.config.agents import settings_by_agent
from kept.errors import ConfigError, UsageError
from kept.live import LiveIndex, LiveState
from kept.mcp.transports import load_server, make_mcp_app
from kept.memory import Memory
from kept.net import serving
from kept.net.endpoint import is_loopback
from kept.net.rate_limit import ClientAddresses, RateLimiter
from kept.net.serving import App, Guard, ServerLimits
from kept.serve.answering import Answering, SharedAgent
from kept.serve.paths import PathSwitch, agent_switch
from kept.serve.probes import Probes, Readiness
from kept.serve.request_front import RequestFront, RequestRecord
from kept.serve.stream_watch import StreamWatch
from kept.sessions.store import SessionStore
from kept.timings import observers
from kept.tokens import KnownTokens
from kept.tools.toolbox import Toolbox
from kept.values import frozen
from kept.web.site import Site
from kept.web.web_access import WebAccess
from kept.workspace.workspace import Workspace

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

_ANY_ADDRESS = ("0.0.0.0", "::")
_REALM = "serve "
_CLOSING_S = 10.0
_TOKEN_HINT = "Create one: kept token create NAME --scope read."


@frozen
class ServeAddress:
    """Address of the server, and a one-time link to the pages if nobody needs a token."""

    url: str
    link: str | None


def run_serve(
    loaded: LoadedConfig,
    open_model: OpenModel,
    *,
    host: str,
    port: int,
    hosts: Iterable[str],
    record: Callable[[RequestRecord], None],
    ready: Callable[[ServeAddress], None],
    report: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or Ctrl-C. Call ``ready`` once the socket is listening, ``record`` for each request."""
    _require_packages()
    config = loaded.config
    Workspace.of(config).require()
    all_agents = _all_agents(loaded)
    addresses = _client_addresses(config)
    bound = serving.listen(host, port, error=UsageError, hint="Choose another port: --port 8751, or 0 for any.")
    try:
        with ExitStack() as opened:
            tokens = _open_tokens(config, host)
            agents = {name: opened.enter_context(_shared(agent)) for name, agent in all_agents.items()}
            program = ServeProgram(loaded, agents, tokens, bound, host, tuple(hosts), open_model, report)
            opened.callback(program.close)
            for agent in served_agents(loaded):
                opened.enter_context(automatic_sync(agent.config, Workspace.of(agent.config), SystemClock()))
            asyncio.run(program.run(addresses, record, ready))
    finally:
        bound.close()


class ServeProgram:
    """The parts of the server, wired together."""

    def __init__(
        self,
        loaded: LoadedConfig,
        agents: Mapping[str, SharedAgent],
        tokens: KnownTokens,
        bound: socket.socket,
        host: str,
        hosts: tuple[str, ...],
        open_model: OpenModel,
        report: Callable[[str], None],
    ) -> None:
        from kept.serve.figures import ServeFigures

        self._config = config = loaded.config
        self._settings = config.gateway.serve
        self._tokens = tokens
        self._bound = bound
        self._host = host
        own = () if host in _ANY_ADDRESS else (host,)
        self._hosts = (*own, *self._settings.allowed_hosts, *hosts)
        self._agents = agents
        self._answered = [agents[agent.config.agent_id] for agent in served_agents(loaded)]
        self._open_model = open_model
        self._report = report
        self._live = {agent.memory.config.agent_id: LiveIndex(agent.memory) for agent in self._answered}
        memory = agents[config.agent_id].memory
        self._site = Site(loaded, memory, agents[config.agent_id].sessions)
        self._site.live = self._live[config.agent_id]
        self._readiness = Readiness(memory, self._settings.ready_timeout_s)
        self._answering: Answering | None = None
        self._figures = ServeFigures(
            [agent.memory for agent in agents.values()], self._live_states, lambda: self._queue_depths()
        )
        self._access = WebAccess(
            load_secret(config.paths.web_key), SystemClock(), token=config.gateway.web.token, gate=tokens, realm=_REALM
        )

    def close(self) -> None:
        for live in self._live.values():
            live.stop()
        self._readiness.close()

    def _live_states(self) -> dict[str, LiveState]:
        return {name: live.state() for name, live in self._live.items()}

    def _queue_depths(self) -> Mapping[str, int]:
        return self._answering.queue_depths() if self._answering else {}

    # the applications

    def _mcp_apps(self) -> dict[str, Starlette]:
        servers = {
            name: load_server(partial(Toolbox, agent.memory, agent.sessions), is_shared=True)
            for name, agent in self._agents.items()
        }
        return {name: make_mcp_app(server, sessions=None) for name, server in servers.items()}

    def _make_app(self, mcp_apps: Mapping[str, App], answering: Answering) -> App:
        from kept.web.web_app import make_web_app

        gateway = self._config.gateway
        guard = partial(Guard, hosts=self._hosts, gate=self._tokens)
        mcp = guard(
            agent_switch(mcp_apps, self._config.agent_id), token=gateway.mcp.token, token_name="gateway.mcp.token"
        )
        messages = http.guard_endpoints(answering, gateway.http, hosts=self._hosts, gate=self._tokens)
        pages = make_web_app(self._site, self._access, hosts=self._hosts, cookie_name=self._access.cookie_name)
        probes = Probes(self._readiness, self._figures.render, lambda app: guard(app, token=None))
        answering.inner = StreamWatch(PathSwitch(mcp=mcp, messages=messages, pages=pages, probes=probes), self._tokens)
        return PathSwitch(
            mcp=mcp,
            messages=messages,
            pages=pages,
            probes=probes,
            of_conversations=answering.local_or_elsewhere(pages),
        )

    # running

    async def run(
        self,
        addresses: ClientAddresses,
        record: Callable[[RequestRecord], None],
        ready: Callable[[ServeAddress], None],
    ) -> None:
        limits = ServerLimits()
        answering = self._answering = Answering(
            self._config, self._answered, self._open_model, report=self._report, limits=limits
        )
        mcp_apps = self._mcp_apps()

        def count(request: RequestRecord) -> None:
            self._figures.count_request(request)
            record(request)

        limiter = RateLimiter(self._settings.address_rate_per_s, self._settings.address_burst)
        watched = StreamWatch(self._make_app(mcp_apps, answering), self._tokens)
        front = RequestFront(watched, limiter, addresses, count)
        server = serving.make_server(front, limits, closing_s=_CLOSING_S)
        self._site.is_stopping = lambda: server.should_exit or self._readiness.is_draining
        observers.append(self._figures.observe)
        try:
            async with AsyncExitStack() as stack:
                for app in mcp_apps.values():
                    await stack.enter_async_context(app.router.lifespan_context(app))
                for live in self._live.values():
                    live.start()
                await self._serve(server, answering, ready)
        finally:
            observers.remove(self._figures.observe)

    async def _serve(self, server: uvicorn.Server, answering: Answering, ready: Callable[[ServeAddress], None]) -> None:
        stopping, hurry = self._stop_on_signals(answering)
        serving_all = asyncio.create_task(server.serve(sockets=[self._bound]))
        answering_messages = asyncio.create_task(answering.run())
        waiting = asyncio.create_task(stopping.wait())
        try:
            await answering.settled.wait()
            if not answering_messages.done():
                ready(self._address())
            await asyncio.wait([serving_all, answering_messages, waiting], return_when=asyncio.FIRST_COMPLETED)
            self._readiness.is_draining = True
            if stopping.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(hurry.wait(), self._settings.drain_s)
        finally:
            waiting.cancel()
            answering.stop()
            await asyncio.wait([answering_messages])  # the replies are still delivered
            server.should_exit = True
            await asyncio.wait([serving_all])
            await self._site.close_chat()
        answering_messages.result()
        serving_all.result()
        if not answering.has_reported:
            self._report("Stopped.")

    def _stop_on_signals(self, answering: Answering) -> tuple[asyncio.Event, asyncio.Event]:
        """Return what the first signal sets, and what the second does."""
        stopping, hurry = asyncio.Event(), asyncio.Event()

        def stop() -> None:
            if stopping.is_set():
                hurry.set()
                answering.stop()  # do not wait for answers
            stopping.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        return stopping, hurry

    def _address(self) -> ServeAddress:
        port = self._bound.getsockname()[1]
        shown = "127.0.0.1" if self._host in _ANY_ADDRESS else f"[{self._host}]" if ":" in self._host else self._host
        url = f"http://{shown}:{port}/"
        link = f"{url}open?key={self._access.make_link_key()}" if self._access.takes_links else None
        return ServeAddress(url, link)


def _open_tokens(config: Config, host: str) -> KnownTokens:
    """Return the tokens that let a request in. Raise ConfigError if one is needed and nobody has one."""
    settings, gateway = config.gateway.serve, config.gateway
    has_settings_token = bool(gateway.mcp.token or gateway.http.token or gateway.http.user_tokens or gateway.web.token)
    limiter = RateLimiter(settings.token_rate_per_s, settings.token_burst)
    always = has_settings_token or not is_loopback(host)
    tokens = KnownTokens(config.home, SystemClock(), limiter, always=always)
    if tokens.is_required and not has_settings_token and not tokens.count_active():
        raise ConfigError(f"No token lets anybody in at {host}.", hint=_TOKEN_HINT)
    return tokens


def _all_agents(loaded: LoadedConfig) -> dict[str, LoadedConfig]:
    """Return the settings of all agents of the home: a token may be for any of them."""
    agents = {**settings_by_agent(loaded), loaded.config.agent_id: loaded}
    return {name: with_session_age(agent) for name, agent in agents.items()}


@contextmanager
def _shared(loaded: LoadedConfig) -> Iterator[SharedAgent]:
    memory, sessions = Memory(loaded.config), SessionStore(loaded.config)
    try:
        yield SharedAgent(loaded, memory, sessions)
    finally:
        memory.close()
        sessions.close()


def _client_addresses(config: Config) -> ClientAddresses:
    try:
        return ClientAddresses(config.gateway.serve.trusted_proxies)
    except ValueError as exc:
        hint = "Write them as 10.0.0.5 or 10.0.0.0/8."
        raise ConfigError("gateway.serve.trusted_proxies has something that is not an address.", hint=hint) from exc


def _require_packages() -> None:
    try:
        import jinja2  # noqa: F401
        import mcp  # noqa: F401
        import nh3  # noqa: F401
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as exc:
        raise UsageError(
            f"'kept serve' needs the package '{exc.name}'.", hint="Install it: pip install 'kept[serve]'"
        ) from exc

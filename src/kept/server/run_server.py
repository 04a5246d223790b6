"""The server behind `kept serve`, `kept gateway` and `kept web`: the parts that the command serves behind one port,
until a signal arrives."""

from __future__ import annotations

import asyncio
import importlib.util
import secrets
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

from kept.agent.tools.toolbox import Toolbox
from kept.base.clock import SystemClock
from kept.base.net import serving
from kept.base.net.endpoint import is_loopback
from kept.base.net.serving import (
    App,
    ClientAddresses,
    Guard,
    RateLimiter,
    Scope,
    ServerLimits,
    bearer_token,
    headers_of,
    refuse,
)
from kept.base.remote_errors import ChannelUnavailable
from kept.base.timings import observers
from kept.base.values import frozen
from kept.config import Config, LoadedConfig
from kept.config.layers import settings_by_agent
from kept.errors import ConfigError, KeptError, UsageError
from kept.gateway.app import open_dispatcher
from kept.gateway.channels.gateway import (
    Gateway,
    OpenModel,
    finish_forgets,
    hold_gateway_lease,
    served_agents,
    with_session_age,
)
from kept.memory import Memory
from kept.notes.workspace import Workspace
from kept.server.live import LiveIndex
from kept.server.mcp.transports import make_mcp_app
from kept.server.requests import (
    Readiness,
    RequestFront,
    agent_switch,
    answer_metrics,
)
from kept.server.shared_gateway import SharedGateway
from kept.server.tokens import KnownTokens
from kept.sessions.store import SessionStore
from kept.storage.open import open_agent, open_home
from kept.storage.record_store import load_key

if TYPE_CHECKING:
    from kept.server.figures import ServeFigures
    from kept.server.web.access import WebAccess
    from kept.server.web.visit import Site

Part = Literal["mcp", "messages", "pages", "figures"]

TOKEN_BURST = 100
"""Requests with one token that may come at once."""
ADDRESS_BURST = 250
"""Requests from one address that may come at once."""
_ANY_ADDRESS = ("0.0.0.0", "::")
_CLOSING_S = 10.0
_PACKAGES = ("jinja2", "mcp", "nh3", "prometheus_client", "starlette", "uvicorn")
"""Packages of the extra 'serve'."""
_PROBE_S = 2.0
_TOKEN_HINT = "Create one: kept token create NAME --scope read. For other machines, put a proxy with TLS in front."


@frozen
class Preset:
    """Parts that a command serves, and their address."""

    command: Literal["serve", "gateway", "web"]
    host: str
    port: int
    parts: frozenset[Part]
    hosts: tuple[str, ...] = ()
    """Further host names under which clients reach the server, besides those of the settings."""
    listens: bool = True

    @property
    def takes_links(self) -> bool:
        """True if a one-time link opens the pages even where everybody else needs a token."""
        return self.command in ("gateway", "web")


def serve_preset(config: Config, host: str | None, port: int | None, hosts: tuple[str, ...]) -> Preset:
    settings = config.gateway.serve
    return Preset(
        "serve",
        settings.host if host is None else host,
        settings.port if port is None else port,
        frozenset({"mcp", "messages", "pages", "figures"}),
        hosts,
    )


def gateway_preset(config: Config) -> Preset:
    """Return what `kept gateway` serves: messages, and the pages if the settings say so."""
    settings, has_pages = config.gateway.http, config.gateway.web.enabled
    parts: frozenset[Part] = frozenset({"messages", "pages"} if has_pages else {"messages"})
    return Preset("gateway", settings.host, settings.port, parts, listens=settings.enabled or has_pages)


def web_preset(config: Config, host: str | None, port: int | None) -> Preset:
    settings = config.gateway.web
    host = settings.host if host is None else host
    return Preset("web", host, settings.port if port is None else port, frozenset({"pages"}))


@frozen
class ServerAddress:
    """Address of a server, and a one-time link to its pages if it takes such links."""

    url: str
    link: str | None
    needs_token: bool
    is_running: bool = False
    """True if another process serves the pages already."""


def run_server(
    loaded: LoadedConfig,
    preset: Preset,
    open_model: OpenModel,
    *,
    ready: Callable[[ServerAddress], None],
    report: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or Ctrl-C. Call ``ready`` once the socket is listening."""
    _require_packages(preset)
    config = loaded.config
    Workspace.of(config).require()
    tokens = open_tokens(config, preset)
    if preset.command == "web" and (running := find_running(config, preset, tokens)):
        ready(running)
        return
    answered = [with_session_age(agent) for agent in served_agents(loaded)] if "messages" in preset.parts else [loaded]
    with ExitStack() as opened:
        is_shared = preset.command == "serve" and bool(config.database)
        if "messages" in preset.parts:
            finish_forgets(answered)
            if not is_shared:
                hold_gateway_lease(config, opened)
        bound = opened.enter_context(closing(listen(preset))) if preset.listens else None
        own = {agent.config.agent_id: agent for agent in answered}
        others = settings_by_agent(loaded) if preset.command == "serve" else {}  # a token may be for any of them
        agents = {}
        for name, agent in {**others, **own}.items():
            toolbox = Toolbox(Memory(agent.config), SessionStore(agent.config))
            agents[name] = opened.enter_context(closing(toolbox))
        live = {name: opened.enter_context(LiveIndex(agents[name].memory)) for name in own}

        async def serve() -> None:
            gateway: Gateway | SharedGateway | None = None
            problem = None
            async with AsyncExitStack() as models:
                try:
                    if is_shared and bound is not None:
                        url = _url_of(_reachable_host(preset), bound.getsockname()[1])
                        open_gateway = partial(_open_gateway, answered, agents, open_model, report)
                        gateway = SharedGateway(open_home(config), open_gateway, url)
                    elif "messages" in preset.parts:
                        gateway = _open_gateway(answered, agents, open_model, report, models)
                except KeptError as exc:  # `kept serve` has other parts, and goes on without
                    if preset.command == "gateway":
                        raise
                    problem = exc
                    report(f"Messages are not answered: {exc.message}")
                await Server(loaded, preset, agents, tokens, bound, gateway, problem, live).run(ready)

        asyncio.run(serve())


def _open_gateway(
    answered: Sequence[LoadedConfig],
    agents: Mapping[str, Toolbox],
    open_model: OpenModel,
    report: Callable[[str], None],
    models: AsyncExitStack,
) -> Gateway:
    """Return what answers messages. ``models`` closes the models of the agents."""
    if not answered[0].config.gateway.auto_responder.enabled:
        hint = "No message would be answered. Set it to true."
        raise ConfigError("gateway.auto_responder.enabled is false.", hint=hint)
    served = []
    for loaded in answered:
        model, agent = open_model(loaded), agents[loaded.config.agent_id]
        models.push_async_callback(model.close)
        served.append(open_dispatcher(agent.memory, agent.sessions, model))
    return Gateway(served, report=report)


@dataclass
class Server:
    """The parts of the server, wired together."""

    loaded: LoadedConfig
    preset: Preset
    agents: Mapping[str, Toolbox]
    tokens: KnownTokens
    bound: socket.socket | None
    gateway: Gateway | SharedGateway | None = None
    problem: KeptError | None = None
    """Why no messages are answered, if there is no gateway."""
    live: Mapping[str, LiveIndex] = field(default_factory=dict)
    limits: ServerLimits = field(default_factory=ServerLimits)

    def __post_init__(self) -> None:
        preset, self._config = self.preset, self.loaded.config
        self._stopping = asyncio.Event()
        own = () if preset.host in _ANY_ADDRESS else (preset.host,)
        self._hosts = (*own, *self._config.gateway.serve.allowed_hosts, *preset.hosts)
        self._access = open_access(self._config, self.tokens, preset)
        self._site: Site | None = None
        self._figures: ServeFigures | None = None
        agent = self.agents[self._config.agent_id]
        if "pages" in preset.parts:
            from kept.server.web.visit import Site

            live = self.live.get(self._config.agent_id)
            self._site = Site(self.loaded, agent.memory, agent.sessions, live, self._stopping.is_set)
        if "figures" in preset.parts:
            from kept.server.figures import ServeFigures

            self._figures = ServeFigures(
                {name: live.state for name, live in self.live.items()},
                {name: partial(self._count_queue, name) for name in (self.live if self.gateway else ())},
            )
        self._readiness = Readiness(agent.memory)
        self._mcp_apps = (
            {name: make_mcp_app(agent) for name, agent in self.agents.items()} if "mcp" in preset.parts else {}
        )

    def _count_queue(self, agent: str) -> int:
        responders = self.gateway.responders if self.gateway else {}
        return responders[agent].limits.count() if agent in responders else 0

    # the applications

    def _make_apps(self) -> dict[str, App]:
        guard = partial(Guard, hosts=self._hosts, gate=self.tokens)
        apps: dict[str, App] = {"figures": guard(answer_metrics(self._figures.render if self._figures else None))}
        if self._mcp_apps:
            from kept.server.api import make_api

            apps["mcp"] = guard(agent_switch(self._mcp_apps, self._config.agent_id))
            apis = {name: make_api(agent) for name, agent in self.agents.items()}
            apps["api"] = guard(agent_switch(apis, self._config.agent_id))
        if "messages" in self.preset.parts:
            apps["messages"] = guard(self._make_endpoints())
        if self._site is not None:
            from kept.server.web.web_app import make_web_app

            apps["pages"] = make_web_app(self._site, self._access, hosts=self._hosts)
        return apps

    def _make_endpoints(self) -> App:
        if self.gateway is not None and self._config.gateway.http.enabled:
            return self.gateway.make_endpoints()
        error = self.problem or ChannelUnavailable("gateway.http.enabled is false.")
        message = f"The HTTP channel is off: {error.message}"
        return lambda scope, receive, send: refuse(send, 503, error.code, message, 5.0)

    # running

    async def run(self, ready: Callable[[ServerAddress], None]) -> None:
        """Serve until a signal arrives, or the gateway stops. Accepted messages are answered before it ends."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._stop)
        if self._figures is not None:
            observers.append(self._figures.observe)
        try:
            async with AsyncExitStack() as stack:
                for app in self._mcp_apps.values():
                    await stack.enter_async_context(app.router.lifespan_context(app))
                await self._run(ready)
        finally:
            if self._figures is not None:
                observers.remove(self._figures.observe)
            self._readiness.close()

    def _stop(self) -> None:
        """Stop at the first signal. At the second, do not wait for answers."""
        if self._stopping.is_set() and self.gateway is not None:
            self.gateway.stop()
        self._stopping.set()

    async def _run(self, ready: Callable[[ServerAddress], None]) -> None:
        server = requests = None
        if self.bound is not None:
            limiter = RateLimiter(self._config.gateway.serve.address_rate_per_s, ADDRESS_BURST)
            try:
                addresses = ClientAddresses(self._config.gateway.serve.trusted_proxies)
            except ValueError as exc:
                problem = "gateway.serve.trusted_proxies has something that is not an address."
                raise ConfigError(problem, hint="Write them as 10.0.0.5 or 10.0.0.0/8.") from exc
            count = self._figures.count_request if self._figures else None
            front = RequestFront(self._make_apps(), self._readiness, limiter, addresses, count, self._is_known)
            server = serving.make_server(front, self.limits, closing_s=_CLOSING_S)
            requests = asyncio.create_task(server.serve(sockets=[self.bound]))
            ready(_address(self.preset, self._access, self.tokens, self.bound.getsockname()[1]))
        messages = asyncio.create_task(self.gateway.run()) if self.gateway else None
        waiting = asyncio.create_task(self._stopping.wait())
        try:
            tasks = [task for task in (requests, messages, waiting) if task is not None]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stopping.set()
            self._readiness.is_stopping = True
            waiting.cancel()
            if self.gateway is not None and messages is not None:
                self.gateway.stop()
                await asyncio.wait([messages])  # the last replies still have to be delivered
            if server is not None and requests is not None:
                server.should_exit = True
                await asyncio.wait([requests])
            if self._site is not None:
                await self._site.close_chat()
        for task in (messages, requests):
            if task is not None:
                task.result()

    def _is_known(self, scope: Scope) -> bool:
        token, cookie = bearer_token(headers_of(scope)), self._access.cookie_in(scope)
        return bool(self.tokens.find(token) or self._access.grant_of(cookie))


def open_tokens(config: Config, preset: Preset) -> KnownTokens:
    """Return the tokens that let a request in. Raise ConfigError if one is needed and nobody has one."""
    is_reachable = preset.listens and not is_loopback(preset.host)
    limiter = RateLimiter(config.gateway.serve.token_rate_per_s, TOKEN_BURST)
    tokens = KnownTokens(open_home(config), SystemClock(), limiter, always=is_reachable)
    needs_token = preset.listens and tokens.is_required and (is_reachable or preset.command != "web")
    if needs_token and not tokens.count_active():
        raise ConfigError(f"No token lets anybody in at {preset.host}.", hint=_TOKEN_HINT)
    return tokens


def open_access(config: Config, tokens: KnownTokens, preset: Preset) -> WebAccess:
    from kept.server.web.access import WebAccess

    return WebAccess(load_key(open_agent(config), "web.key"), SystemClock(), tokens, always_links=preset.takes_links)


def _url_of(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _reachable_host(preset: Preset) -> str:
    """Return the name under which other machines reach this server."""
    return socket.gethostname() if preset.host in _ANY_ADDRESS else preset.host


def _address(
    preset: Preset, access: WebAccess, tokens: KnownTokens, port: int, *, is_running: bool = False
) -> ServerAddress:
    url = _url_of("127.0.0.1" if preset.host in _ANY_ADDRESS else preset.host, port) + "/"
    link = f"{url}open?key={access.make_link_key()}" if "pages" in preset.parts and access.takes_links else None
    return ServerAddress(url, link, tokens.is_required, is_running)


def find_running(config: Config, preset: Preset, tokens: KnownTokens) -> ServerAddress | None:
    """Return the address and a new link if another process serves this agent's pages, or None."""
    import httpx

    settings = config.gateway
    ports = [preset.port]
    if settings.web.enabled and preset.port == settings.web.port:
        ports.append(settings.http.port)  # a gateway has them at its own port
    if not is_loopback(preset.host) and preset.host not in _ANY_ADDRESS:
        return None
    access, challenge = open_access(config, tokens, preset), secrets.token_urlsafe(12)
    for port in filter(None, ports):
        address = _address(preset, access, tokens, port, is_running=True)
        try:
            url = f"{address.url}hello"
            answer = httpx.get(url, params={"challenge": challenge}, timeout=_PROBE_S, trust_env=False).text.strip()
        except (httpx.HTTPError, ValueError):
            continue
        if secrets.compare_digest(answer.encode(), access.answer(challenge).encode()):  # it has the key of the agent
            return address
    return None


def listen(preset: Preset) -> socket.socket:
    where = "gateway.http.port" if preset.command == "gateway" else "--port"
    hint = f"Choose another port with {where}; 0 takes any that is free."
    return serving.listen(preset.host, preset.port, error=UsageError, hint=hint)


def _require_packages(preset: Preset) -> None:
    missing = [package for package in _PACKAGES if preset.listens and importlib.util.find_spec(package) is None]
    if missing:
        hint = "Install it: pip install 'kept[serve]'"
        raise UsageError(f"'kept {preset.command}' needs the package '{missing[0]}'.", hint=hint)

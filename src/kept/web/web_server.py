"""Running the pages: listen, make the one-time link, and serve until a signal arrives."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from kept.agent.services import load_secret
from kept.clock import Clock, SystemClock
from kept.config import Config, LoadedConfig
from kept.errors import UsageError
from kept.net import serving
from kept.net.endpoint import is_loopback
from kept.net.serving import ServerLimits
from kept.values import frozen
from kept.web.site import Site
from kept.web.web_access import WebAccess

if TYPE_CHECKING:
    import uvicorn

_ANY_ADDRESS = ("0.0.0.0", "::")
_PROBE_S = 2.0
TLS_HINT = (
    "Set gateway.web.token (KEPT_GATEWAY__WEB__TOKEN), and put a proxy with TLS in front: docs/tasks/web.md shows how. "
    "Or listen on 127.0.0.1."
)


@frozen
class WebAddress:
    """Address that the pages are served at, and the one-time link that opens them."""

    url: str
    link: str
    is_running: bool = False
    """True if another process serves them already."""


def open_access(config: Config, clock: Clock | None = None) -> WebAccess:
    return WebAccess(load_secret(config.paths.web_key), clock or SystemClock(), token=config.gateway.web.token)


def cookie_name(port: int) -> str:
    """Return the name of the cookie. Browsers share cookies between the ports of a host, so it has the port."""
    return f"kept-{port}"


def serve_web(
    loaded: LoadedConfig,
    *,
    host: str,
    port: int,
    ready: Callable[[WebAddress], None],
    limits: ServerLimits | None = None,
) -> None:
    """Serve until a signal arrives. Call ``ready`` with the address once the socket is listening.

    If this agent's pages are served at the address already, call ``ready`` with a link for them and return.
    """
    config = loaded.config
    serving.require_token(host, config.gateway.web.token, hint=TLS_HINT)
    _require_packages()
    access = open_access(config)
    if port and (running := find_running(access, host, port)):
        ready(running)
        return
    bound = serving.listen(host, port, error=UsageError, hint="Choose another port: --port 8741, or 0 for any.")
    site = None
    try:
        site = Site.open(loaded)
        _serve(site, access, bound, host, ready, limits or ServerLimits())
    finally:
        bound.close()
        if site is not None:
            site.close()


@contextmanager
def serving_web(loaded: LoadedConfig, *, ready: Callable[[WebAddress], None]) -> Iterator[None]:
    """Serve the pages at the configured address in a thread, while another server runs in this process.

    That server keeps the index current. Signals are its business.
    """
    settings = loaded.config.gateway.web
    serving.require_token(settings.host, settings.token, hint=TLS_HINT)
    _require_packages()
    hint = "Set gateway.web.port to another port, or gateway.web.enabled to false."
    bound = serving.listen(settings.host, settings.port, error=UsageError, hint=hint)
    with closing(bound), closing(Site.open(loaded)) as site:
        access = open_access(loaded.config)
        server = _make_server(site, access, bound, settings.host, ServerLimits())
        thread = threading.Thread(target=lambda: asyncio.run(_run(server, site, bound)), name="kept-web", daemon=True)
        thread.start()
        ready(_address(access, settings.host, bound.getsockname()[1]))
        try:
            yield
        finally:
            server.should_exit = True
            thread.join()


def _serve(
    site: Site,
    access: WebAccess,
    bound: socket.socket,
    host: str,
    ready: Callable[[WebAddress], None],
    limits: ServerLimits,
) -> None:
    server = _make_server(site, access, bound, host, limits, handles_signals=True)
    site.keep_current()
    ready(_address(access, host, bound.getsockname()[1]))
    asyncio.run(_run(server, site, bound))


def _make_server(
    site: Site,
    access: WebAccess,
    bound: socket.socket,
    host: str,
    limits: ServerLimits,
    *,
    handles_signals: bool = False,
) -> uvicorn.Server:
    from kept.web.web_app import make_web_app

    hosts = (*(() if host in _ANY_ADDRESS else (host,)), *site.settings.allowed_hosts)
    app = make_web_app(site, access, hosts=hosts, cookie_name=cookie_name(bound.getsockname()[1]))
    server = serving.make_server(app, limits, handles_signals=handles_signals)
    site.is_stopping = lambda: server.should_exit
    return server


async def _run(server: uvicorn.Server, site: Site, bound: socket.socket) -> None:
    try:
        await server.serve(sockets=[bound])
    finally:
        await site.close_chat()


def _address(access: WebAccess, host: str, port: int, *, is_running: bool = False) -> WebAddress:
    shown = "127.0.0.1" if host in _ANY_ADDRESS else f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}/"
    return WebAddress(url, f"{url}open?key={access.make_link_key()}", is_running)


def find_running(access: WebAccess, host: str, port: int) -> WebAddress | None:
    """Return the address and a new link if this agent's pages are served there by another process, or None."""
    import httpx

    if not is_loopback(host) and host not in _ANY_ADDRESS:
        return None
    challenge = secrets.token_urlsafe(12)
    address = _address(access, host, port, is_running=True)
    try:
        answer = httpx.get(
            f"{address.url}hello", params={"challenge": challenge}, timeout=_PROBE_S, trust_env=False
        ).text.strip()
    except (httpx.HTTPError, ValueError):
        return None
    return address if secrets.compare_digest(answer.encode(), access.answer(challenge).encode()) else None


def _require_packages() -> None:
    try:
        import jinja2  # noqa: F401
        import nh3  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as exc:
        raise UsageError(
            f"'kept web' needs the package '{exc.name}'.", hint="Install it: pip install 'kept[web]'"
        ) from exc

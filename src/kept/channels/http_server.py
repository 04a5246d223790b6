"""The socket and the server behind the HTTP channel."""

from __future__ import annotations

import socket
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from kept.config import HttpSettings
from kept.errors import ChannelUnavailable, ConfigError
from kept.net.guard import App
from kept.net.loopback import is_loopback

if TYPE_CHECKING:
    import uvicorn

_CLOSING_S = 2


def listen(settings: HttpSettings) -> socket.socket:
    """The socket, bound before anything else is begun: whatever is wrong with the address is said at once."""
    if not is_loopback(settings.host) and not settings.token:
        raise ConfigError(
            f"gateway.http.host is {settings.host}, which others can reach, and there is no token.",
            hint="Set gateway.http.token (KEPT_GATEWAY__HTTP__TOKEN), or leave the host at 127.0.0.1.",
        )
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((settings.host.strip("[]"), settings.port))
        bound.listen()  # whoever comes before the server is up waits for it
    except OSError as exc:
        bound.close()
        raise ChannelUnavailable(
            f"{settings.host}:{settings.port} cannot be listened on ({exc.strerror}).",
            hint="Choose another gateway.http.port; 0 takes any that is free.",
        ) from exc
    return bound


def make_server(app: App) -> uvicorn.Server:
    """A server that leaves signals to whoever runs it."""
    try:
        import uvicorn
    except ImportError as exc:
        raise not_installed() from exc

    class Server(uvicorn.Server):
        def capture_signals(self) -> Any:
            return nullcontext()

    config = uvicorn.Config(
        app,
        timeout_graceful_shutdown=_CLOSING_S,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
    )
    return Server(config)


def not_installed() -> ChannelUnavailable:
    return ChannelUnavailable(
        "The HTTP channel needs starlette and uvicorn.",
        hint="pip install 'kept[gateway]', or set gateway.http.enabled to false.",
    )

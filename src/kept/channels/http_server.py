"""The socket and the server behind the HTTP channel."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from kept.config import HttpChannel
from kept.errors import ChannelUnavailable
from kept.net import serving
from kept.net.guard import App
from kept.net.serving import ServerLimits

if TYPE_CHECKING:
    import uvicorn


def listen(settings: HttpChannel) -> socket.socket:
    """The socket, bound before anything else is begun: whatever is wrong with the address is said at once."""
    hint = "Set gateway.http.token (KEPT_GATEWAY__HTTP__TOKEN), or leave the host at 127.0.0.1."
    serving.require_token(settings.host, settings.token, hint=hint)
    hint = "Choose another gateway.http.port; 0 takes any that is free."
    return serving.listen(settings.host, settings.port, error=ChannelUnavailable, hint=hint)


def make_server(app: App, limits: ServerLimits) -> uvicorn.Server:
    """A server that leaves signals to whoever runs it."""
    try:
        return serving.make_server(app, limits)
    except ImportError as exc:
        raise not_installed() from exc


def not_installed() -> ChannelUnavailable:
    return ChannelUnavailable(
        "The HTTP channel needs starlette and uvicorn.",
        hint="pip install 'kept[gateway]', or set gateway.http.enabled to false.",
    )

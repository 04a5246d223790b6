"""Access to our own servers: by token if one is set, and never for a web page that merely knows the port.

A page in a browser can send requests to loopback, and by DNS rebinding under its own host name. So the Host header
must name a host that we serve, and so must the Origin header if the browser sends one.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from kept.net.loopback import LOOPBACK_HOSTS

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """ASGI application that checks requests before it passes them on to another."""

    def __init__(
        self, app: App, *, token: str | None, hosts: Iterable[str] = (), open_paths: Iterable[str] = ()
    ) -> None:
        self.app = app
        self.token = token
        self.hosts = frozenset((*LOOPBACK_HOSTS, *(host.lower() for host in hosts)))
        self.open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is None:
            await self.app(scope, receive, send)
        else:
            await _refuse(send, *refusal)

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if _hostname(headers.get(b"host", "")) not in self.hosts:
            return 421, "host_refused", "This server does not answer to that Host."
        origin = headers.get(b"origin")
        if origin is not None and _origin_host(origin) not in self.hosts:
            return 403, "origin_refused", "Requests from that Origin are not accepted."
        if self.token and scope["path"] not in self.open_paths and not self._knows_token(headers):
            return 401, "token_missing", "Send the token: 'Authorization: Bearer TOKEN'."
        return None

    def _knows_token(self, headers: dict[bytes, str]) -> bool:
        scheme, _, token = headers.get(b"authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), (self.token or "").encode())


def _hostname(host: str) -> str:
    """Return the Host header without its port. An IPv6 address keeps its brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _origin_host(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:  # such as half of an IPv6 address
        return ""


async def _refuse(send: Send, status: int, code: str, message: str) -> None:
    body = json.dumps({"error": {"code": code, "message": message, "hint": ""}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

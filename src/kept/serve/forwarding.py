"""Passing a request on to the process that answers messages for this home, and taking in what others pass on.

That process listens on a socket in the home, which only the user of the home can open. A request keeps its own token,
which is checked there again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import httpx

from kept.durable import OPEN_FOLDER
from kept.errors import WriteFailed
from kept.net.serving import ROUTE, App, Receive, Scope, Send, describe_refusal, note_route, refuse

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

SOCKET_FILE = "answering.sock"
_ROUTE_HEADER = b"x-kept-route"
_RETRY_S = 2.0
_CONNECT_S = 5.0
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade".split()
)


class SocketFolder:
    """The home as a place for a socket. The path of a socket may have about 100 bytes only, so it leads through the
    open folder."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._folder = os.open(home, OPEN_FOLDER)
        through_folder = f"/proc/self/fd/{self._folder}"
        self.path = os.path.join(through_folder if os.path.isdir(through_folder) else home, SOCKET_FILE)

    def listen(self) -> socket.socket:
        """Return a socket that listens. The caller holds the lock of the gateway, so an old one is abandoned."""
        self.remove()
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bound.bind(self.path)
            os.chmod(SOCKET_FILE, 0o600, dir_fd=self._folder)
            bound.listen()
        except OSError as exc:
            bound.close()
            raise WriteFailed(f"{self._home}: no socket can be created ({exc.strerror or exc}).") from exc
        return bound

    def remove(self) -> None:
        with suppress(OSError):
            os.unlink(SOCKET_FILE, dir_fd=self._folder)

    def close(self) -> None:
        os.close(self._folder)


class ForwardEntry:
    """ASGI application on that socket. It tells the caller which route has answered."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_route(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                route = scope.get(ROUTE, "unmatched").encode()
                message = {**message, "headers": [*message.get("headers", ()), (_ROUTE_HEADER, route)]}
            await send(message)

        await self.app(scope, receive, send_with_route)


class Forwarder:
    """ASGI application that passes requests on."""

    def __init__(self, path: str) -> None:
        """``path`` is that of the socket."""
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=path),
            trust_env=False,
            timeout=httpx.Timeout(None, connect=_CONNECT_S),
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body_read = anyio.Event()
        request = self._client.build_request(
            scope["method"],
            httpx.URL(scheme="http", host="127.0.0.1", raw_path=_raw_path(scope)),
            headers=_headers(scope),
            content=_body(receive, body_read),
        )
        try:
            response = await self._client.send(request, stream=True)
        except httpx.TransportError:
            await self._refuse(scope, send)
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when_gone, receive, body_read, tasks)
            try:
                await self._pass_back(response, scope, send)
            finally:
                with anyio.CancelScope(shield=True):
                    await response.aclose()
            tasks.cancel_scope.cancel()

    async def _pass_back(self, response: httpx.Response, scope: Scope, send: Send) -> None:
        headers = [(name.lower(), value) for name, value in response.headers.raw]
        note_route(scope, next((value.decode() for name, value in headers if name == _ROUTE_HEADER), "unmatched"))
        dropped = (*_HOP_BY_HOP, _ROUTE_HEADER, b"date", b"server")
        passed = [pair for pair in headers if pair[0] not in dropped]
        await send({"type": "http.response.start", "status": response.status_code, "headers": passed})
        try:
            async for chunk in response.aiter_raw():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except httpx.TransportError:
            pass  # the other process ended; the client sees an answer that ends early
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _refuse(self, scope: Scope, send: Send) -> None:
        message = (
            "No server of this home answers messages at the moment. Try again, or stop a 'kept gateway' beside it."
        )
        refusal = describe_refusal(scope["path"], 503, "not_answering", message)
        await refuse(send, 503, refusal, wait_s=_RETRY_S)


def _raw_path(scope: Scope) -> bytes:
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    return path + (b"?" + query if query else b"")


def _headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    own = [
        (name, value)
        for name, value in scope["headers"]
        if name.lower() not in _HOP_BY_HOP and name.lower() not in (b"content-length", b"expect")
    ]
    has_length = any(name.lower() == b"content-length" for name, _ in scope["headers"])
    is_chunked = any(name.lower() == b"transfer-encoding" for name, _ in scope["headers"])
    if has_length and not is_chunked:
        own += [(name, value) for name, value in scope["headers"] if name.lower() == b"content-length"]
    elif not is_chunked:
        own.append((b"content-length", b"0"))
    return own


async def _body(receive: Receive, body_read: anyio.Event) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise httpx.WriteError("The client is gone.")
        yield message.get("body", b"")
        if not message.get("more_body"):
            body_read.set()
            return


async def _cancel_when_gone(receive: Receive, body_read: anyio.Event, tasks: TaskGroup) -> None:
    """End the request when the client hangs up. Only one reader may wait for it, so the body comes first."""
    await body_read.wait()
    while (await receive())["type"] != "http.disconnect":
        pass
    tasks.cancel_scope.cancel()

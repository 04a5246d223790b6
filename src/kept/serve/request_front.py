"""The front of the server: every request gets an id, is limited by its address, passed on, logged and counted."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, MutableMapping
from typing import Any

from kept.grants import Grant
from kept.net.rate_limit import ClientAddresses, RateLimiter
from kept.net.serving import GRANT, ROUTE, App, Receive, Scope, Send, describe_refusal, refuse
from kept.values import frozen

REQUEST_ID = "kept.request_id"
"""Name in the scope of a request for its id."""
UNLIMITED = ("/healthz", "/readyz")
_METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH")
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


@frozen
class RequestRecord:
    """What may be logged and counted of a request: no path, no query, no address, nothing that it sent."""

    id: str
    method: str
    route: str
    status: int
    took_s: float
    token: str | None


class RequestFront:
    """ASGI application in front of all others."""

    def __init__(
        self, app: App, limiter: RateLimiter, addresses: ClientAddresses, record: Callable[[RequestRecord], None]
    ) -> None:
        self.app = app
        self._limiter = limiter
        self._addresses = addresses
        self._record = record

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        peer = (scope.get("client") or ("",))[0]
        scope[REQUEST_ID] = self._request_id(peer, headers)
        answer = _RecordedAnswer(send, scope[REQUEST_ID])
        started_s = time.perf_counter()
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        try:
            await self._answer(scope, receive, answer.send, self._addresses.key_of(peer, headers))
        finally:
            grant: Grant | None = scope.get(GRANT)
            took_s = time.perf_counter() - started_s
            route = scope.get(ROUTE, "unmatched")
            name = grant.name if grant else None
            self._record(RequestRecord(scope[REQUEST_ID], method, route, answer.status, took_s, name))

    async def _answer(self, scope: Scope, receive: Receive, send: Send, address: str) -> None:
        wait_s = 0.0 if scope["path"] in UNLIMITED else self._limiter.take(address)
        if wait_s:
            message = "There are too many requests from your address. Try later."
            await refuse(send, 429, describe_refusal(scope["path"], 429, "rate_limited", message), wait_s=wait_s)
        else:
            await self.app(scope, receive, send)

    def _request_id(self, peer: str, headers: dict[bytes, str]) -> str:
        """Return the id that a trusted balancer gave a request, or a new one."""
        name = headers.get(b"x-request-id", "")
        return name if self._addresses.trusts(peer) and _ID.fullmatch(name) else secrets.token_hex(8)


class _RecordedAnswer:
    def __init__(self, send: Send, request_id: str) -> None:
        self.status = 500
        """Until an answer begins: that of a request which failed before."""
        self._send = send
        self._id = request_id.encode()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", self._id)]}
        await self._send(message)

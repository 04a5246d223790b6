"""The front of the server: every request gets an id, is limited by its address, passed on, logged and counted.

Logs are JSON, one object a line: requests, and what the program has to say. Never a text, a query or a secret. The
message of an exception may quote a note, so an error is logged with its type and the places in the code only.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import secrets
import sys
import time
import traceback
from collections.abc import Callable, MutableMapping
from typing import Any

from kept.base.grants import Grant
from kept.base.net.serving import (
    GRANT,
    ROUTE,
    App,
    ClientAddresses,
    RateLimiter,
    Receive,
    Scope,
    Send,
    describe_refusal,
    refuse,
)
from kept.base.values import frozen

UNLIMITED = ("/healthz", "/readyz")
_METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH")
_FRAMES = 8

log = logging.getLogger("kept.requests")


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
        self,
        app: App,
        limiter: RateLimiter,
        addresses: ClientAddresses,
        record: Callable[[RequestRecord], None],
        *,
        is_known: Callable[[Scope], bool],
    ) -> None:
        """``is_known`` returns whether a request has a right token or cookie. Such a request is not limited by its
        address, or strangers there could keep it out; its token has a limit of its own."""
        self.app = app
        self._is_known = is_known
        self._limiter = limiter
        self._addresses = addresses
        self._record = record

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        peer = (scope.get("client") or ("",))[0]
        request_id = secrets.token_hex(8)
        answer = _RecordedAnswer(send, request_id)
        started_s = time.perf_counter()
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        try:
            await self._answer(scope, receive, answer.send, self._addresses.key_of(peer, headers))
        finally:
            grant: Grant | None = scope.get(GRANT)
            took_s = time.perf_counter() - started_s
            route = scope.get(ROUTE, "unmatched")
            name = grant.name if grant else None
            self._record(RequestRecord(request_id, method, route, answer.status, took_s, name))

    async def _answer(self, scope: Scope, receive: Receive, send: Send, address: str) -> None:
        wait_s = 0.0 if scope["path"] in UNLIMITED else self._limiter.take(address)
        if wait_s and not self._is_known(scope):
            message = "There are too many requests from your address. Try later."
            await refuse(send, 429, describe_refusal(scope["path"], 429, "rate_limited", message), wait_s=wait_s)
        else:
            await self.app(scope, receive, send)


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


# the log


class JsonFormatter(logging.Formatter):
    """Formatter that writes one JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        request = getattr(record, "request", None)
        if isinstance(request, RequestRecord):
            fields |= {
                "event": "request",
                "requestId": request.id,
                "method": request.method,
                "route": request.route,
                "status": request.status,
                "durationMs": round(request.took_s * 1000, 3),
                "token": request.token,
            }
        else:  # another library's arguments may be anything
            fields["message"] = record.getMessage() if record.name.startswith("kept") else str(record.msg)
        if record.exc_info and record.exc_info[1] is not None:
            fields |= _error_fields(record.exc_info[1])
        return json.dumps(fields)


def log_request(request: RequestRecord) -> None:
    log.info("request", extra={"request": request})


def log_line(text: str) -> None:
    """Log what the server has to say to its operator."""
    log.info("%s", text)


def log_as_json() -> None:
    """Write the log as JSON to standard error, requests included."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    log.setLevel(logging.INFO)


def _error_fields(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    return {"error": type(error).__name__, "at": [f"{frame.filename}:{frame.lineno}" for frame in frames]}

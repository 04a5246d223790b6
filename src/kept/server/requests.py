"""Every request to the server: it gets an id, is limited by its address, passed on by its path, logged and counted.

The paths of an operator are answered here: health, readiness and figures.

Logs may be JSON, one object a line: requests, and what the program has to say. Never a text, a query or a secret. The
message of an exception may quote a note, so an error is logged with its type and the places in the code only.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from kept.agent.tools.record_json import to_json
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
    headers_of,
    refuse,
)
from kept.base.values import frozen
from kept.client.server_connection import API
from kept.errors import KeptError
from kept.memory import Memory
from kept.server.mcp.transports import PATH as MCP_PATH

MESSAGES = "/v1/"
HEALTH, READY, METRICS = "/healthz", "/readyz", "/metrics"
READY_TIMEOUT_S = 2.0
"""Time within which the index has to open."""
_PROBES = (HEALTH, READY, METRICS)
_PARTS = {HEALTH: "probes", READY: "probes", METRICS: "figures", MCP_PATH: "mcp"}
"""Part of the server behind each path that is one path only."""
_METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH")
_FRAMES = 8
_UNCACHED = {"cache-control": "no-store"}

log = logging.getLogger("kept.requests")
log.setLevel(logging.WARNING)  # requests are logged as JSON only, whatever else "kept" logs


@frozen
class RequestRecord:
    """Facts of a request that may be logged and counted: no path, no query, no address, nothing that it sent."""

    request_id: str
    method: str
    route: str
    status: int
    duration_ms: float
    token: str | None


@dataclass
class RequestFront:
    """ASGI application in front of all others: it passes requests on by their path, to the parts that there are."""

    apps: Mapping[str, App]
    """Application of each part of the server: "mcp", "messages", "pages", and "figures", which is always there."""
    readiness: Readiness
    limiter: RateLimiter
    addresses: ClientAddresses
    count: Callable[[RequestRecord], None] | None
    is_known: Callable[[Scope], bool]
    """Returns whether a request has a right token or cookie. Such a request is not limited by its address, or strangers
    there could keep it out; its token has a limit of its own."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = secrets.token_hex(8)
        started_s = time.perf_counter()
        status = 500  # until an answer begins: that of a request which failed before

        async def send_with_id(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", request_id.encode())]}
            await send(message)

        try:
            client = self.addresses.key_of((scope.get("client") or ("",))[0], headers_of(scope))
            wait_s = 0.0 if scope["path"] in (HEALTH, READY) else self.limiter.take(client)
            if wait_s and not self.is_known(scope):
                message = "There are too many requests from your address. Try later."
                await refuse(send_with_id, 429, "rate_limited", message, wait_s)
            else:
                await self._pass_on(scope, receive, send_with_id)
        finally:
            grant: Grant | None = scope.get(GRANT)
            method = scope["method"] if scope["method"] in _METHODS else "OTHER"
            took_ms, token = round((time.perf_counter() - started_s) * 1000, 3), grant.name if grant else None
            record = RequestRecord(request_id, method, scope.get(ROUTE, "unmatched"), status, took_ms, token)
            log.info("request", extra={"request": record})
            if self.count is not None:
                self.count(record)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        name = _PARTS.get(path, "messages" if path.startswith(MESSAGES) or "pages" not in self.apps else "pages")
        name = "api" if path.startswith(API) else name
        if path in _PARTS:
            scope[ROUTE] = path  # also if a guard refuses the request
        if not {".", ".."}.isdisjoint(path.split("/")):
            # A proxy in front may resolve it, and another part would answer than the one that it let through.
            await refuse(send, 400, "path_refused", "The path must not have dots for folders.")
        elif path in _PROBES and scope["method"] not in ("GET", "HEAD"):
            await refuse(send, 405, "wrong_method", f"{path} does not take {scope['method'][:10]}.")
        elif name == "probes":
            await self._answer_probe(scope, receive, send)
        elif name in self.apps:
            await self.apps[name](scope, receive, send)
        else:
            await refuse(send, 404, "not_found", f"This server has nothing at {path[:100]}.")

    async def _answer_probe(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.responses import JSONResponse

        body, problem = {"status": "ok"}, ""
        if scope["path"] == READY:
            problem = await self.readiness.find_problem()
            body = {"status": "not ready" if problem else "ready", "reason": problem}
        await JSONResponse(body, 503 if problem else 200, _UNCACHED)(scope, receive, send)


def agent_switch(apps: Mapping[str, App], default: str) -> App:
    """Return an application that serves the memory of the agent that a token is for, or else of the default agent."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        grant: Grant | None = scope.get(GRANT)
        agent = grant.agent or default if grant is not None else default
        if agent in apps:
            await apps[agent](scope, receive, send)
        else:
            message = f"This server does not serve the agent '{agent}' of the token."
            await refuse(send, 403, "agent_not_found", message)

    return answer


class Readiness:
    """True if the index opens and answers in time, on a connection of its own."""

    def __init__(self, memory: Memory, timeout_s: float = READY_TIMEOUT_S) -> None:
        self._service = memory.index_service.clone()
        self._timeout_s = timeout_s
        self._looking: asyncio.Task[str] | None = None
        self.is_stopping = False

    def close(self) -> None:
        self._service.close()

    async def find_problem(self) -> str:
        """Return why no request should be sent here, or an empty text."""
        if self.is_stopping:
            return "stopping"
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(asyncio.to_thread(self._look))
        # One look at a time, not cancelled at the timeout: a thread cannot be, and a second would not be faster.
        done, _ = await asyncio.wait([self._looking], timeout=self._timeout_s)
        return self._looking.result() if done else "timeout"

    def _look(self) -> str:
        try:
            with self._service.inspecting() as (index, _), index.reading():
                index.live.count_chunks()
        except KeptError as exc:
            self._service.reopen()
            return exc.code
        except Exception:
            log.exception("the index could not be opened")
            return "internal"
        return ""


def answer_metrics(render: Callable[[], tuple[bytes, str]] | None) -> App:
    """Return the application behind the figures, without a guard. ``render`` returns them and their media type; without
    it there are none."""
    from starlette.responses import Response

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        grant: Grant | None = scope.get(GRANT)
        try:
            if grant is not None:
                grant.require("read")
                grant.require_everybody()
        except KeptError as exc:
            await refuse(send, 403, exc.code, f"{exc.message} {exc.hint}")
            return
        if render is None:
            await refuse(send, 404, "not_found", "Only 'kept serve' has figures.")
        else:
            figures, media_type = await asyncio.to_thread(render)
            await Response(figures, headers={**_UNCACHED, "content-type": media_type})(scope, receive, send)

    return answer


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
            fields |= {"event": "request", **to_json(request)}
        else:  # another library's arguments may be anything
            fields["message"] = record.getMessage() if record.name.startswith("kept") else str(record.msg)
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
            fields |= {"error": type(error).__name__, "at": [f"{frame.filename}:{frame.lineno}" for frame in frames]}
        return json.dumps(fields)


def log_line(text: str) -> None:
    log.info("%s", text)


def log_as_json() -> None:
    """Write the log as JSON to standard error, requests included."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    log.setLevel(logging.INFO)

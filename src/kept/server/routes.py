"""Routes by path to the parts of the server, and the paths of its operator: health, readiness and figures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from kept.base.grants import Grant
from kept.base.net.serving import GRANT, App, Receive, Scope, Send, describe_refusal, note_route, refuse
from kept.errors import KeptError
from kept.memory import Memory
from kept.server.mcp.transports import PATH as MCP_PATH

MESSAGES = "/v1/"
HEALTH, READY, METRICS = "/healthz", "/readyz", "/metrics"
READY_TIMEOUT_S = 2.0
"""Time within which the index has to open."""

log = logging.getLogger(__name__)


class PathSwitch:
    """ASGI application that passes requests on by their path, to the parts that are set."""

    def __init__(self, probes: App) -> None:
        self._probes = probes
        self.mcp: App | None = None
        self.messages: App | None = None
        self.pages: App | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if not {".", ".."}.isdisjoint(path.split("/")):
            # A proxy in front may resolve it, and another part would answer than the one that it let through.
            message = "The path must not have dots for folders."
            await refuse(send, 400, describe_refusal(path, 400, "path_refused", message))
            return
        if path == MCP_PATH:
            note_route(scope, MCP_PATH)  # also if its guard refuses the request
        app = self._choose(path)
        if app is None:
            message = f"This server has nothing at {path[:100]}."
            await refuse(send, 404, describe_refusal(path, 404, "not_found", message))
        else:
            await app(scope, receive, send)

    def _choose(self, path: str) -> App | None:
        if path in (HEALTH, READY, METRICS):
            return self._probes
        if path == MCP_PATH:
            return self.mcp
        if path.startswith(MESSAGES):
            return self.messages
        return self.pages or self.messages


def agent_switch(apps: Mapping[str, App], default: str) -> App:
    """Return an application that serves the memory of the agent that a token is for, or else of the default agent."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        grant: Grant | None = scope.get(GRANT)
        agent = grant.agent or default if grant is not None else default
        if agent in apps:
            await apps[agent](scope, receive, send)
        else:
            message = f"This server does not serve the agent '{agent}' of the token."
            await refuse(send, 403, describe_refusal(MCP_PATH, 403, "agent_not_found", message))

    return answer


class Readiness:
    """Whether the index opens and answers in time, on a connection of its own."""

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


class Probes:
    """ASGI application behind the paths of an operator."""

    def __init__(
        self, readiness: Readiness, guard: Callable[[App], App], render: Callable[[], tuple[bytes, str]] | None
    ) -> None:
        """``guard`` puts a guard before an application. ``render`` returns the figures and their media type; without it
        there are none."""
        self._readiness = readiness
        self._render = render
        self._metrics = guard(self._show_metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        note_route(scope, path)
        if scope["method"] not in ("GET", "HEAD"):
            refusal = describe_refusal(path, 405, "wrong_method", f"{path} does not take {scope['method'][:10]}.")
            await refuse(send, 405, refusal)
        elif path == METRICS:
            await self._metrics(scope, receive, send)
        elif path == HEALTH:
            await _send(send, 200, b'{"status": "ok"}\n', "application/json")
        else:
            problem = await self._readiness.find_problem()
            status = "not ready" if problem else "ready"
            body = f'{{"status": "{status}", "reason": "{problem}"}}\n'.encode()
            await _send(send, 503 if problem else 200, body, "application/json")

    async def _show_metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        grant: Grant | None = scope.get(GRANT)
        try:
            if grant is not None:
                grant.require("read")
                grant.require_everybody()
        except KeptError as exc:
            await refuse(send, 403, describe_refusal(METRICS, 403, exc.code, f"{exc.message} {exc.hint}"))
            return
        if self._render is None:
            await refuse(send, 404, describe_refusal(METRICS, 404, "not_found", "Only 'kept serve' has figures."))
            return
        body, media_type = await asyncio.to_thread(self._render)
        await _send(send, 200, body, media_type)


async def _send(send: Send, status: int, body: bytes, media_type: str) -> None:
    headers = [
        (b"content-type", media_type.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

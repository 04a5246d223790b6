"""The HTTP server of the gateway: its routes, and who may call them."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kept.channels import chat_completions
from kept.channels.chat_completions import ChatCompletions
from kept.channels.http_messages import HttpEndpoints, json_response
from kept.channels.http_scopes import ScopedRoutes
from kept.channels.switchboard import Switchboard
from kept.clock import Clock
from kept.config import HttpSettings
from kept.error_statuses import status_of
from kept.errors import KeptError
from kept.net import serving
from kept.net.serving import App, Guard, ServerLimits, TokenGate
from kept.remote_errors import ChannelUnavailable
from kept.sessions.people import People
from kept.sessions.store import SessionStore

if TYPE_CHECKING:
    import uvicorn
    from starlette.requests import Request
    from starlette.responses import Response

_PATHS_HINT = (
    "There are POST /v1/messages, GET and DELETE /v1/messages/ID, POST /v1/chat/completions, GET /v1/models, and "
    "GET /healthz."
)


def make_app(
    front: Switchboard, sessions: Mapping[str, SessionStore], settings: HttpSettings, *, clock: Clock, people: People
) -> App:
    """Return the application behind its guard. ``sessions`` has those of each agent, by its name."""
    hosts = () if settings.host in ("0.0.0.0", "::") else (settings.host,)
    app = make_endpoints(front, sessions, settings, clock=clock, people=people)
    return guard_endpoints(app, settings, hosts=(*hosts, *settings.allowed_hosts))


def make_endpoints(
    front: Switchboard, sessions: Mapping[str, SessionStore], settings: HttpSettings, *, clock: Clock, people: People
) -> App:
    """Return the application without a guard."""
    try:
        from starlette.applications import Starlette
    except ImportError as exc:
        raise _not_installed() from exc

    endpoints = HttpEndpoints(front, settings, clock)
    chat = ChatCompletions(front, sessions, settings, clock)
    scoped = ScopedRoutes(people, _show_error)
    routes = [
        scoped.make("POST", "/v1/messages", endpoints.post, "write"),
        scoped.make("GET", "/v1/messages/{id}", endpoints.get, "read"),
        scoped.make("DELETE", "/v1/messages/{id}", endpoints.delete, "write"),
        scoped.make("POST", "/v1/chat/completions", chat.complete, "write"),
        scoped.make("GET", "/v1/models", chat.list_models, "read"),
        scoped.make("GET", "/v1/models/{name:path}", chat.get_model, "read"),
        scoped.make("POST", "/v1/approvals/{id}", endpoints.decide, "write"),
        scoped.make("GET", "/healthz", endpoints.health, None),
    ]
    return Starlette(routes=routes, exception_handlers={404: _no_such_path, 405: _wrong_method})


def guard_endpoints(app: App, settings: HttpSettings, *, hosts: Iterable[str], gate: TokenGate | None = None) -> Guard:
    """Return the application behind a guard. ``gate`` has tokens besides those of the settings."""
    return Guard(
        app,
        token=settings.token,
        user_tokens=settings.user_tokens,
        hosts=hosts,
        open_paths=("/healthz",),
        describe=_describe_refusal,
        gate=gate,
        token_name="gateway.http.token",
    )


def listen(settings: HttpSettings) -> socket.socket:
    """Return the bound socket. Call it before anything else is started, so that a bad address is reported at once."""
    hint = "Set gateway.http.token (KEPT_GATEWAY__HTTP__TOKEN), or leave the host at 127.0.0.1."
    token = settings.token or next(iter(settings.user_tokens.values()), None)
    serving.require_token(settings.host, token, hint=hint)
    hint = "Choose another gateway.http.port; 0 takes any that is free."
    return serving.listen(settings.host, settings.port, error=ChannelUnavailable, hint=hint)


def make_server(app: App, limits: ServerLimits) -> uvicorn.Server:
    """Return a server that installs no signal handlers."""
    try:
        return serving.make_server(app, limits)
    except ImportError as exc:
        raise _not_installed() from exc


def _not_installed() -> ChannelUnavailable:
    return ChannelUnavailable(
        "The HTTP channel needs starlette and uvicorn.",
        hint="pip install 'kept[gateway]', or set gateway.http.enabled to false.",
    )


def _show_error(request: Request, error: KeptError) -> Response:
    return _refusal(request, status_of(error).http, error.code, f"{error.message} {error.hint}".strip())


async def _no_such_path(request: Request, _: Exception) -> Response:
    return _refusal(request, 404, "not_found", f"There is nothing at {request.url.path}.")


async def _wrong_method(request: Request, exc: Exception) -> Response:
    headers = dict(getattr(exc, "headers", None) or {})  # Allow
    return _refusal(request, 405, "wrong_method", f"{request.url.path} does not take {request.method}.", headers)


def _refusal(request: Request, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    body = _describe_refusal(request.url.path, status, code, message)
    return json_response(body, status, headers)


def _describe_refusal(path: str, status: int, code: str, message: str) -> dict[str, Any]:
    """Return an error in the form that clients of a path expect."""
    if path.startswith(chat_completions.PATHS):
        return chat_completions.error_body(status, code, message)
    hint = _PATHS_HINT if status in (404, 405) else ""
    return {"error": {"code": code, "message": message, "hint": hint}}

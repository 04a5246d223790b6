"""The routes of the HTTP channel, what each of them does, and whom the token of a person speaks for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kept.base.clock import Clock
from kept.base.grants import Act, Grant
from kept.base.net.serving import TOKEN_USER, App, Guard, TokenGate, note_route
from kept.errors import KeptError, ScopeMissing
from kept.gateway.channels import chat_completions, http_messages
from kept.gateway.channels.chat_completions import ChatCompletions
from kept.gateway.channels.http_messages import RETRY_AFTER_S, HttpEndpoints, grant_of, json_response
from kept.gateway.channels.switchboard import Switchboard
from kept.sessions.people import Account, People, read_account
from kept.sessions.store import SessionStore

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    Endpoint = Callable[[Request], Awaitable[Response]]


def make_endpoints(front: Switchboard, sessions: Mapping[str, SessionStore], *, clock: Clock, people: People) -> App:
    """Return the application without a guard."""
    from starlette.applications import Starlette

    endpoints = HttpEndpoints(front, clock)
    chat = ChatCompletions(front, sessions, clock)
    make = partial(_make_route, people)
    routes = [
        make("POST", "/v1/messages", endpoints.post, "talk to the agent"),
        make("GET", "/v1/messages/{id}", endpoints.get, "read"),
        make("DELETE", "/v1/messages/{id}", endpoints.delete, "talk to the agent"),
        make("POST", "/v1/chat/completions", chat.complete, "talk to the agent"),
        make("GET", "/v1/models", chat.list_models, "read"),
        make("POST", "/v1/approvals/{id}", endpoints.decide, "decide about calls of tools"),
    ]
    return Starlette(routes=routes, exception_handlers={404: _show_fault, 405: _show_fault})


def guard_endpoints(app: App, *, hosts: Iterable[str], gate: TokenGate) -> Guard:
    """Return the application behind a guard."""
    return Guard(app, hosts=hosts, describe=_describe_refusal, gate=gate)


def _make_route(people: People, method: str, path: str, endpoint: Endpoint, act: Act) -> Route:
    """Return a route that lets a request in if its token allows the act."""
    from starlette.routing import Route

    async def answer(request: Request) -> Response:
        note_route(request.scope, path)
        grant = grant_of(request)
        try:
            if grant is not None:
                grant.require(act)
                _note_person(people, request, grant)
            return await endpoint(request)
        except KeptError as exc:
            return _show_error(request, exc)

    route = Route(path, answer, methods=[method])
    route.name = act  # shown to the test that lists all routes
    return route


def _note_person(people: People, request: Request, grant: Grant) -> None:
    """Let the token of a person speak for that person only."""
    if grant.person is None:
        return
    is_chat = request.url.path.startswith(chat_completions.PATHS)
    channel = chat_completions.NAME if is_chat else http_messages.NAME
    user = find_user(people, grant.person, channel)
    if user is None:
        raise ScopeMissing(
            f"The person of the token '{grant.name}' has no account on the channel '{channel}'.",
            hint=f"Add {channel}:NAME to the person in session.identity_links.",
        )
    if people.viewer(Account(channel, user)).is_owner:
        raise ScopeMissing(
            f"The token '{grant.name}' is for a person, and in a chat that person is the owner (session.owner).",
            hint="A token for a person is never the owner's: use one that is for nobody in particular.",
        )
    request.scope[TOKEN_USER] = user


def find_user(people: People, person: str, channel: str) -> str | None:
    """Return the name of a person on a channel: that of an account there, or else the one on the HTTP channel, unless
    it is somebody else's."""
    name = person if person in people.settings.identity_links else people.name_of(read_account(person))
    linked = people.settings.identity_links.get(name)
    accounts = [read_account(text) for text in linked or (person,)]
    private = [account for account in accounts if not account.is_group]
    for account in private:
        if account.channel == channel:
            return account.name
    for account in private:
        here = Account(channel, account.name)
        if account.channel == http_messages.NAME and people.name_of(here) == str(here):
            return account.name
    return None


def _show_error(request: Request, error: KeptError) -> Response:
    headers = {"Retry-After": str(RETRY_AFTER_S)} if error.http in (429, 503) else {}
    shape = _describe_refusal(request.url.path, error.http, error.code, error.message, error.hint)
    return json_response(shape, error.http, headers)


async def _show_fault(request: Request, exc: Exception) -> Response:
    """Answer a path or a method that there is not."""
    status = getattr(exc, "status_code", 404)
    code = "not_found" if status == 404 else "wrong_method"
    message = f"There is no {request.method} {request.url.path}."
    return json_response(
        _describe_refusal(request.url.path, status, code, message), status, getattr(exc, "headers", None)
    )


def _describe_refusal(path: str, status: int, code: str, message: str, hint: str = "") -> dict[str, Any]:
    """Return an error in the form that clients of a path expect."""
    if path.startswith(chat_completions.PATHS):
        return chat_completions.error_body(status, code, f"{message} {hint}".strip() if status < 500 else message)
    return {"error": {"code": code, "message": message, "hint": hint}}

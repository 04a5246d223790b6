"""The HTTP channel: its routes, what each of them does, and whom the token of a person speaks for.

A client posts a message, and gets the reply at once, as a stream of events, or later by its id.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from kept.agent.events import (
    AgentEvent,
    ApprovalAsked,
    ApprovalDecided,
    Inbound,
    Notice,
    Reply,
    ReplyDelta,
    ToolEnded,
    ToolStarted,
    approval_json,
)
from kept.base.clock import Clock, new_id
from kept.base.grants import Act, Grant
from kept.base.limits import utf8_safe
from kept.base.net.serving import GRANT, ROUTE, App, error_body
from kept.base.remote_errors import MessageNotFound, MessageRefused
from kept.base.values import frozen
from kept.errors import AgentNotFound, KeptError, ScopeMissing
from kept.gateway.channel import ANY_AGENT, Switchboard
from kept.gateway.inbox import AcceptedMessage, AnswerRun, message_status
from kept.gateway.responder import Responder
from kept.sessions.people import Account, People, account_of, private_chat, read_account
from kept.sessions.session_key import DEFAULT_ACCOUNT, GROUP, SessionKey

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    Endpoint = Callable[[Request, "Caller"], Awaitable[Response]]

NAME = "http"
CHAT_NAME, CHAT_PATHS = "openai", ("/v1/chat/completions", "/v1/models")
"""Channel of OpenAI's chat completions, and their routes."""
_EXAMPLE = 'Such as {"user": "ada", "text": "Hello"}.'
_FIELDS = ("agent", "conversation", "user", "group", "text", "id", "stream", "wait")
RETRY_AFTER_S = 5
MAX_NAME_CHARS = 256
HEARTBEAT_S = 15.0
HEARTBEAT_EVENT = b": still at work\n\n"
EVENT_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
"""Form of the id that a client gives to a message."""


MAX_BODY_BYTES = 1_000_000


class HttpEndpoints:
    """Handlers of the routes. What they raise is shown by the routes."""

    def __init__(self, front: Switchboard, clock: Clock) -> None:
        self._front = front
        self._clock = clock

    async def post(self, request: Request, caller: Caller) -> Response:
        from starlette.responses import StreamingResponse

        body = await read_body(request, MAX_BODY_BYTES)
        chat, inbound = self._read_message(body, caller)
        wants_events = "text/event-stream" in request.headers.get("accept", "")
        streams, waits = read_flag(body, "stream", default=wants_events), read_flag(body, "wait", default=True)
        key = caller.route(self._front, chat, read_name(body.get("agent"), "agent"))
        message = await self._front.accept(key, inbound, caller.grant)
        responder = self._front.responders[key.agent_id]
        if streams:
            events = self._events(responder, message.id)
            return StreamingResponse(events, media_type="text/event-stream", headers=EVENT_HEADERS)
        if not waits:
            return json_response(self._state(responder, message.id), 202)
        state = message_json(*await responder.wait(NAME, message.id))
        return json_response(state, {"failed": 502, "waiting": 202, "answering": 202}.get(state["status"], 200))

    async def get(self, request: Request, caller: Caller) -> Response:
        """Return the state of a message. For the token of a user or of an agent, those of others do not exist."""
        message_id: str = request.path_params["id"]
        responder = self._front.holder(NAME, message_id)
        message, _ = responder.get(NAME, message_id)
        if not caller.owns(SessionKey.parse_full(message.key)):
            raise MessageNotFound(f"There is no message '{message_id}'.")
        return json_response(self._state(responder, message_id))

    async def decide(self, request: Request, caller: Caller) -> Response:
        """Allow or deny a tool call that waits for a person. The token of a person or an agent decides in sessions of
        theirs only."""
        approval_id = request.path_params["id"]
        unknown = MessageNotFound(
            f"No call waits for permission under '{approval_id}'.", hint="It was decided, or it timed out."
        )
        key = self._front.find_chat(approval_id)
        if key is None or not caller.owns(key):
            raise unknown
        body = await read_body(request, MAX_BODY_BYTES)
        if not isinstance(body, dict) or not isinstance(body.get("allow"), bool) or len(body) > 1:
            raise MessageRefused("The body has to say whether to allow it.", hint='Such as {"allow": true}.')
        if not self._front.decide(approval_id, allow=body["allow"], by=NAME):
            raise unknown
        return json_response({"id": approval_id, "allowed": body["allow"]})

    def _read_message(self, body: Any, caller: Caller) -> tuple[SessionKey, Inbound]:
        """Return a message and its chat."""
        if not isinstance(body, dict):
            raise MessageRefused("The body has to be an object.", hint=_EXAMPLE)
        unknown = [name for name in body if name not in _FIELDS]
        if unknown:
            raise MessageRefused(f"'{unknown[0]}' is not a field of a message.", hint="See docs/tasks/gateway.md.")
        user = caller.name(read_name(body.get("user"), "user"))
        message_id = body.get("id") or new_id()
        if not isinstance(message_id, str) or not ID.fullmatch(message_id):
            raise MessageRefused("'id' has to be up to 128 letters, digits, '.', '_', ':' and '-'.")
        text = body.get("text")
        if not isinstance(text, str) or not text.strip():
            raise MessageRefused("'text' is missing.", hint=_EXAMPLE)
        conversation = read_name(body.get("conversation"), "conversation")
        if not (conversation or user):
            raise MessageRefused("'user' and 'conversation' are missing.", hint="Give one of them, or both.")
        chat = private_chat(ANY_AGENT, NAME, user, conversation)
        if read_flag(body, "group"):
            if conversation is None or not user:
                raise MessageRefused("A group needs 'conversation', and 'user' for the sender.")
            if caller.user is not None:
                raise MessageRefused("The token of a user is for private conversations.", hint="Leave out 'group'.")
            chat = SessionKey(ANY_AGENT, NAME, DEFAULT_ACCOUNT, GROUP, conversation)
        return chat, Inbound(message_id, utf8_safe(text), user, self._clock.now())

    def _state(self, responder: Responder, message_id: str) -> dict[str, Any]:
        message, run = responder.get(NAME, message_id)
        state = message_json(message, run)
        waiting = responder.approvals.waiting(run.session_id) if run and state["status"] == "answering" else []
        return {**state, "approvals": [approval_json(asked) for asked in waiting]} if waiting else state

    async def _events(self, responder: Responder, message_id: str) -> AsyncIterator[bytes]:
        """Yield server-sent events. The heartbeat keeps proxies from closing a silent connection."""
        yield _event("accepted", {"id": message_id})
        async for event in responder.follow(NAME, message_id, heartbeat_s=HEARTBEAT_S):
            yield HEARTBEAT_EVENT if event is None else _event(*event_json(event))
        state = self._state(responder, message_id)
        yield _event("error" if state["status"] == "failed" else "reply", state)


@frozen
class Caller:
    """Whose request it is, as the token says that came with it."""

    grant: Grant | None
    """Rights of the token; None if none is needed."""
    user: str | None
    """Name on the channel of the person that the token is for; None if it is for nobody in particular."""

    def name(self, user: str | None) -> str | None:
        """Return the user that a request names, or that its token is for. Raise MessageRefused if they differ."""
        if self.user is not None and user not in (None, self.user):
            raise MessageRefused("'user' is not the user of this token.", hint="Leave it out.")
        return self.user or user

    def owns(self, key: SessionKey) -> bool:
        """Return whether a conversation is of the user and of an agent that the token is for."""
        if self.grant is not None and not self.grant.reaches(key.agent_id):
            return False
        return self.user is None or account_of(key) == Account(NAME, self.user)

    def route(self, front: Switchboard, key: SessionKey, agent: str | None) -> SessionKey:
        """Return a key with the agent that a request names. The token of a person reaches only the agent of its chat,
        that of an agent only this one."""
        if self.grant is not None and self.grant.agent is not None:
            agent = agent or self.grant.agent
            self.grant.require_agent(agent)
            return front.route(key, agent)
        routed = front.route(key)
        if self.user is not None and agent not in (None, routed.agent_id):
            raise AgentNotFound(f"This gateway does not serve an agent '{agent}' for you.", hint="Leave it out.")
        return front.route(key, agent) if agent else routed


async def read_body(request: Request, max_bytes: int) -> Any:
    from starlette.requests import ClientDisconnect

    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise MessageRefused("The body has to be JSON.", hint="Send 'Content-Type: application/json'.")
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise MessageRefused(f"The body has more than {max_bytes:,} bytes.")
    except ClientDisconnect as exc:
        raise MessageRefused("The client disconnected before the end of the body.") from exc
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise MessageRefused("The body is not JSON.") from exc


def message_json(message: AcceptedMessage, run: AnswerRun | None) -> dict[str, Any]:
    """Return the state of a message for clients. Of messages that are answered together, the last has the reply."""
    state: dict[str, Any] = {
        "id": message.id,
        "conversation": message.key,
        "status": message_status(run),
        "reply": None,
    }
    if run is None or run.cancelled or run.parts is None:
        return state
    state["sessionId"] = run.session_id
    if message.id != run.message_ids[-1]:
        state["answeredWith"] = run.message_ids[-1]
    elif run.error:
        state["error"] = {"code": run.error, "message": run.reply or "", "hint": ""}
    else:
        state["reply"] = run.reply
        state |= run.details
    return state


def event_json(event: AgentEvent) -> tuple[str, dict[str, Any]]:
    """Return the name of an event, and what clients are told of it."""
    match event:
        case ReplyDelta():
            return "delta", {"text": event.text}
        case ToolStarted():
            return "tool", {"name": event.name, "status": "started"}
        case ToolEnded():
            return "tool", {"name": event.name, "status": "done" if event.ok else "failed"}
        case Notice():
            return "notice", {"text": event.text}
        case ApprovalAsked():
            return "approval", approval_json(event)
        case ApprovalDecided():
            return "decision", {"id": event.id, "tool": event.tool, "allowed": event.allowed, "by": event.by}
        case Reply():
            return "reply", {"text": event.text}
        case _:
            assert_never(event)


def _event(name: str, value: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(value)}\n\n".encode()


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    from starlette.responses import Response

    body = json.dumps(value).encode() + b"\n"
    return Response(body, status, {"Cache-Control": "no-store", **(headers or {})}, "application/json")


def error_response(error: KeptError) -> Response:
    headers = {"Retry-After": str(RETRY_AFTER_S)} if error.http in (429, 503) else {}
    return json_response(error_body(error.code, error.message, error.hint), error.http, headers)


def read_name(value: Any, field: str) -> str | None:
    """Return the name that a field has, or None if it has none."""
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_NAME_CHARS:
        raise MessageRefused(f"'{field}' has to be a text of at most {MAX_NAME_CHARS} characters.")
    return utf8_safe(value)


def read_flag(body: Mapping[str, Any], field: str, *, default: bool = False) -> bool:
    value = default if body.get(field) is None else body[field]
    if not isinstance(value, bool):
        raise MessageRefused(f"'{field}' has to be true or false.")
    return value


# routes


def make_endpoints(front: Switchboard, *, clock: Clock, people: People) -> App:
    """Return the application without a guard."""
    from starlette.applications import Starlette

    from kept.gateway.channels.chat_completions import ChatCompletions

    endpoints = HttpEndpoints(front, clock)
    chat = ChatCompletions(front, clock)
    make = partial(_make_route, people)
    routes = [
        make("POST", "/v1/messages", endpoints.post, "talk to the agent"),
        make("GET", "/v1/messages/{id}", endpoints.get, "read"),
        make("POST", "/v1/chat/completions", chat.complete, "talk to the agent"),
        make("GET", "/v1/models", chat.list_models, "read"),
        make("POST", "/v1/approvals/{id}", endpoints.decide, "decide about calls of tools"),
    ]
    return Starlette(routes=routes, exception_handlers={404: _show_fault, 405: _show_fault})


def _make_route(people: People, method: str, path: str, endpoint: Endpoint, act: Act) -> Route:
    """Return a route that lets a request in if its token allows the act."""
    from starlette.routing import Route

    async def answer(request: Request) -> Response:
        request.scope[ROUTE] = path
        grant: Grant | None = request.scope.get(GRANT)
        try:
            if grant is not None:
                grant.require(act)
            is_chat = path.startswith(CHAT_PATHS)
            user = _user_of(people, grant, CHAT_NAME if is_chat else NAME) if grant and grant.person else None
            return await endpoint(request, Caller(grant, user))
        except KeptError as exc:
            return error_response(exc)

    route = Route(path, answer, methods=[method])
    route.name = act  # shown to the test that lists all routes
    return route


def _user_of(people: People, grant: Grant, channel: str) -> str:
    """Return the name on a channel of the person that a token speaks for: that of an account there, or else the one on
    the HTTP channel, unless it is somebody else's."""
    person, links = grant.person or "", people.settings.identity_links
    name = person if person in links else people.name_of(read_account(person))
    private = [account for account in map(read_account, links.get(name) or (person,)) if not account.is_group]
    users = [account.name for account in private if account.channel == channel]
    for account in private:
        here = Account(channel, account.name)
        if account.channel == NAME and people.name_of(here) == str(here):
            users.append(account.name)
    if not users:
        raise ScopeMissing(
            f"The person of the token '{grant.name}' has no account on the channel '{channel}'.",
            hint=f"Add {channel}:NAME to the person in session.identity_links.",
        )
    if people.viewer(Account(channel, users[0])).is_owner:
        raise ScopeMissing(
            f"The token '{grant.name}' is for a person, and in a chat that person is the owner (session.owner).",
            hint="A token for a person is never the owner's: use one that is for nobody in particular.",
        )
    return users[0]


async def _show_fault(request: Request, exc: Exception) -> Response:
    status = getattr(exc, "status_code", 404)
    body = error_body(
        "not_found" if status == 404 else "wrong_method", f"There is no {request.method} {request.url.path}."
    )
    return json_response(body, status, getattr(exc, "headers", None))

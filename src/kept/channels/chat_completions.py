"""OpenAI's chat completions, so that any chat program can talk to the agent. Messages take the same path as all others.

A reply is computed even if the client goes away. A client that sends the same request again while it is being answered,
or that marks it as a retry as OpenAI's libraries do, gets the same reply: nothing is answered twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kept.agent.events import GroupLine, Inbound, ReplyDelta
from kept.channels.chat_request import (
    MODEL_PREFIX,
    ChatCall,
    ChatLine,
    read_call,
)
from kept.channels.http_messages import (
    EVENT_HEADERS,
    HEARTBEAT_S,
    MAX_BODY_BYTES,
    grant_of,
    json_response,
    own_name,
    read_body,
    route_own,
)
from kept.channels.switchboard import ANY_AGENT, Switchboard
from kept.clock import Clock, new_id
from kept.remote_errors import ModelUnknown
from kept.responder.inbox_records import AcceptedMessage, AnswerRun, message_status
from kept.sessions.people import THREAD, thread_id
from kept.sessions.session_key import DEFAULT_ACCOUNT, SessionKey
from kept.sessions.store import SessionStore

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

NAME = "openai"
UNNAMED_USER = "default"
PATHS = ("/v1/chat/completions", "/v1/models")
_REQUEST = "request"
"""Metadata of a message: hash of the request that brought it."""
_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error"}
_TYPES |= {404: "invalid_request_error", 409: "invalid_request_error", 429: "rate_limit_error"}


def error_body(status: int, code: str, message: str) -> dict[str, Any]:
    """Return an error in OpenAI's form."""
    return {"error": {"message": message, "type": _TYPES.get(status, "server_error"), "param": None, "code": code}}


class ChatCompletions:
    """Handlers of the routes. What they raise is shown by the routes."""

    def __init__(self, front: Switchboard, sessions: Mapping[str, SessionStore], clock: Clock) -> None:
        """``sessions`` has those of each agent, by its name."""
        self._front = front
        self._sessions = sessions
        self._clock = clock

    # models

    async def list_models(self, request: Request) -> Response:
        return json_response({"object": "list", "data": [_model_json(name) for name in self._models(request)]})

    def _models(self, request: Request) -> tuple[str, ...]:
        """Return the names of the agents that the token of a request may talk to."""
        grant = grant_of(request)
        names = [name for name in self._front.responders if grant is None or grant.reaches(name)]
        return (MODEL_PREFIX, *(f"{MODEL_PREFIX}/{name}" for name in names))

    def _require_agent(self, request: Request, agent: str | None, model: str) -> None:
        names = self._models(request)
        if agent is not None and f"{MODEL_PREFIX}/{agent}" not in names:
            raise ModelUnknown(f"There is no model '{model}'.", hint=f"There are: {', '.join(names)}.")

    # completions

    async def complete(self, request: Request) -> Response:
        from starlette.responses import StreamingResponse

        call = read_call(await read_body(request, MAX_BODY_BYTES), request.headers)
        call = replace(call, user=own_name(request, call.user))
        self._require_agent(request, call.agent, call.model)
        key = route_own(self._front, request, _chat_key(call), call.agent)
        message = await self._accept(call, key, request)
        if call.stream:
            chunks = self._chunks(call, message)
            return StreamingResponse(chunks, media_type="text/event-stream", headers=EVENT_HEADERS)
        message, run = await self._front.responder_for(key).wait(NAME, message.id)
        if run is None or run.parts is None or run.error:
            status, body = _describe_failure(run)
            return json_response(body, status, {"x-should-retry": "false"} if status == 502 else {})
        return json_response(_completion_json(call, message, run))

    async def _accept(self, call: ChatCall, key: SessionKey, request: Request) -> AcceptedMessage:
        """Return the message of a request when it is on disk: a new one, or that of an earlier attempt."""
        is_retry = request.headers.get("x-stainless-retry-count", "0") != "0"
        earlier = self._find_earlier(call, key, is_retry=is_retry)
        if earlier is not None:
            return await self._front.accept(key, earlier.inbound, grant_of(request))
        responder = self._front.responder_for(key)
        responder.limits.check(str(key))
        for line in await asyncio.to_thread(self._find_unseen, call, key):
            sender = "assistant" if line.role == "assistant" else call.user or "user"
            responder.add_group_line(key, GroupLine(sender, line.text, self._clock.now()))
        inbound = Inbound(new_id(), "\n\n".join(call.new), call.user, self._clock.now(), {_REQUEST: call.digest})
        return await self._front.accept(key, inbound, grant_of(request))

    def _find_earlier(self, call: ChatCall, key: SessionKey, *, is_retry: bool) -> AcceptedMessage | None:
        inbox = self._front.responder_for(key).inbox
        for message in reversed(inbox.messages()):
            if message.key == str(key) and (message.inbound.metadata or {}).get(_REQUEST) == call.digest:
                is_open = message_status(inbox.find_run(message)) in ("waiting", "answering")
                return message if is_open or is_retry else None
        return None

    # the conversation

    def _find_unseen(self, call: ChatCall, key: SessionKey) -> tuple[ChatLine, ...]:
        """Return the history if the conversation is new to Kept. Begin a new session if a chat begins like another."""
        sessions = self._sessions[key.agent_id]
        record = sessions.find(NAME, key.user_id, chat_type=key.chat_type)
        if record is None:
            return call.history
        if not call.continues and not call.history:
            sessions.reset(record.id)
        return ()

    # the answer

    async def _chunks(self, call: ChatCall, message: AcceptedMessage) -> AsyncIterator[bytes]:
        """Yield the reply as server-sent events. The heartbeat keeps proxies from closing a silent connection."""
        head = _head(call, message, "chat.completion.chunk")
        more = {"usage": None} if call.stream_usage else {}
        yield _event({**head, "choices": [_delta({"role": "assistant", "content": ""})], **more})
        streamed, responder = "", self._front.holder(NAME, message.id)
        async for event in responder.follow(NAME, message.id, heartbeat_s=HEARTBEAT_S):
            if event is None:
                yield b": still at work\n\n"
            elif isinstance(event, ReplyDelta):
                streamed += event.text
                yield _event({**head, "choices": [_delta({"content": event.text})], **more})
        _, run = responder.get(NAME, message.id)
        if run is None or run.parts is None or run.error:
            yield _event(_describe_failure(run)[1])
            return
        rest = _missing_end(streamed, run.reply or "")
        if rest:
            yield _event({**head, "choices": [_delta({"content": rest})], **more})
        yield _event({**head, "choices": [_delta({}, "stop")], **more})
        if call.stream_usage:
            yield _event({**head, "choices": [], "usage": _usage_json(run)})
        yield b"data: [DONE]\n\n"


def _chat_key(call: ChatCall) -> SessionKey:
    """Return the key of a chat. Requests without a user are those of one person, who has the token."""
    name = thread_id(call.user or UNNAMED_USER, call.conversation)
    return SessionKey(ANY_AGENT, NAME, DEFAULT_ACCOUNT, THREAD, name)


def _missing_end(streamed: str, reply: str) -> str:
    """Return what the client does not have yet, such as the reply of a command, which is not streamed."""
    if streamed.strip().endswith(reply.strip()):
        return ""
    if reply.startswith(streamed):
        return reply[len(streamed) :]
    return f"\n\n{reply}"


def _describe_failure(run: AnswerRun | None) -> tuple[int, dict[str, Any]]:
    if run is not None and run.cancelled:
        return 409, error_body(409, "cancelled", "The answer was stopped.")
    if run is None or run.parts is None:
        return 503, error_body(503, "queue_full", "The gateway is shutting down. It answers after its next start.")
    return 502, error_body(502, run.error or "internal", run.reply or "")


def _head(call: ChatCall, message: AcceptedMessage, kind: str) -> dict[str, Any]:
    created = int(message.accepted_at.timestamp())
    return {"id": f"chatcmpl-{message.id}", "object": kind, "created": created, "model": call.model}


def _completion_json(call: ChatCall, message: AcceptedMessage, run: AnswerRun) -> dict[str, Any]:
    answer = {"role": "assistant", "content": run.reply or "", "refusal": None}
    choice = {"index": 0, "message": answer, "finish_reason": "stop", "logprobs": None}
    return {**_head(call, message, "chat.completion"), "choices": [choice], "usage": _usage_json(run)}


def _usage_json(run: AnswerRun) -> dict[str, int]:
    usage = run.details.get("usage") or {}
    tokens_in, tokens_out = usage.get("inputTokens", 0), usage.get("outputTokens", 0)
    return {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}


def _delta(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}


def _event(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def _model_json(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": MODEL_PREFIX}

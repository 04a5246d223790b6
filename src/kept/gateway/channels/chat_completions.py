"""OpenAI's chat completions, so that any chat program can talk to the agent. Messages take the same path as all others.

A reply is computed even if the client goes away. A client that sends the same request again while it is being answered,
or that marks it as a retry as OpenAI's libraries do, gets the same reply: nothing is answered twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kept.agent.events import GroupLine, Inbound, ReplyDelta
from kept.base.clock import Clock, new_id
from kept.base.digest import digest_bytes
from kept.base.limits import utf8_safe
from kept.base.net.serving import error_body
from kept.base.remote_errors import MessageRefused, ModelUnknown
from kept.base.values import frozen
from kept.gateway.channel import ANY_AGENT, Switchboard
from kept.gateway.channels.http import (
    CHAT_NAME,
    EVENT_HEADERS,
    HEARTBEAT_EVENT,
    HEARTBEAT_S,
    MAX_BODY_BYTES,
    MAX_NAME_CHARS,
    Caller,
    json_response,
    read_body,
    read_flag,
    read_name,
)
from kept.gateway.inbox import AcceptedMessage, AnswerRun, message_status
from kept.gateway.responder import Responder
from kept.sessions.people import THREAD, thread_id
from kept.sessions.session_key import DEFAULT_ACCOUNT, SessionKey

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


UNNAMED_USER = "default"
"""Requests without a user are those of one person, who has the token."""
_REQUEST = "request"
"""Metadata of a message: hash of the request that brought it."""


class ChatCompletions:
    """Handlers of the routes. What they raise is shown by the routes."""

    def __init__(self, front: Switchboard, clock: Clock) -> None:
        self._front = front
        self._clock = clock

    # models

    async def list_models(self, request: Request, caller: Caller) -> Response:
        common = {"object": "model", "created": 0, "owned_by": MODEL_PREFIX}
        return json_response({"object": "list", "data": [{"id": name, **common} for name in self._models(caller)]})

    def _models(self, caller: Caller) -> tuple[str, ...]:
        """Return the names of the agents that a caller may talk to."""
        names = [name for name in self._front.responders if caller.grant is None or caller.grant.reaches(name)]
        return (MODEL_PREFIX, *(f"{MODEL_PREFIX}/{name}" for name in names))

    # completions

    async def complete(self, request: Request, caller: Caller) -> Response:
        from starlette.responses import StreamingResponse

        call = read_call(await read_body(request, MAX_BODY_BYTES), request.headers)
        call = replace(call, user=caller.name(call.user))
        names = self._models(caller)
        if call.model not in names:
            shown = call.model[:MAX_NAME_CHARS]
            raise ModelUnknown(f"There is no model '{shown}'.", hint=f"There are: {', '.join(names)}.")
        name = thread_id(call.user or UNNAMED_USER, call.conversation)
        chat = SessionKey(ANY_AGENT, CHAT_NAME, DEFAULT_ACCOUNT, THREAD, name)
        key = caller.route(self._front, chat, call.model.partition("/")[2] or None)
        is_retry = request.headers.get("x-stainless-retry-count", "0") != "0"
        message = await self._accept(call, key, caller, is_retry=is_retry)
        responder = self._front.responders[key.agent_id]
        if call.stream:
            chunks = self._chunks(call, message, responder)
            return StreamingResponse(chunks, media_type="text/event-stream", headers=EVENT_HEADERS)
        message, run = await responder.wait(CHAT_NAME, message.id)
        if run is None or run.parts is None or run.error:
            status, body = _describe_failure(run)
            return json_response(body, status, {"x-should-retry": "false"} if status == 502 else {})
        answer = {"role": "assistant", "content": run.reply or "", "refusal": None}
        choice = {"index": 0, "message": answer, "finish_reason": "stop", "logprobs": None}
        head = _head(call, message, "chat.completion")
        return json_response({**head, "choices": [choice], "usage": _usage_json(run)})

    async def _accept(self, call: ChatCall, key: SessionKey, caller: Caller, *, is_retry: bool) -> AcceptedMessage:
        """Return the message of a request when it is on disk: a new one, or that of an earlier attempt."""
        earlier = self._find_earlier(call, key, is_retry=is_retry)
        if earlier is not None:
            return await self._front.accept(key, earlier.inbound, caller.grant)
        responder = self._front.responders[key.agent_id]
        responder.limits.check(str(key))
        for line in await asyncio.to_thread(self._find_unseen, call, key):
            sender = "assistant" if line.role == "assistant" else call.user or "user"
            responder.add_group_line(key, GroupLine(sender, line.text, self._clock.now()))
        inbound = Inbound(new_id(), call.text, call.user, self._clock.now(), {_REQUEST: call.digest})
        return await self._front.accept(key, inbound, caller.grant)

    def _find_earlier(self, call: ChatCall, key: SessionKey, *, is_retry: bool) -> AcceptedMessage | None:
        inbox = self._front.responders[key.agent_id].inbox
        for message in reversed(inbox.messages()):
            if message.key == str(key) and message.metadata.get(_REQUEST) == call.digest:
                is_open = message_status(inbox.find_run(message)) in ("waiting", "answering")
                return message if is_open or is_retry else None
        return None

    # the conversation

    def _find_unseen(self, call: ChatCall, key: SessionKey) -> tuple[ChatLine, ...]:
        """Return the history if the conversation is new to Kept. Begin a new session if a chat begins like another."""
        sessions = self._front.responders[key.agent_id].sessions
        record = sessions.find(CHAT_NAME, key.user_id, chat_type=key.chat_type)
        if record is None:
            return call.history
        if not call.continues and not call.history:
            sessions.reset(record.id)
        return ()

    # the answer

    async def _chunks(self, call: ChatCall, message: AcceptedMessage, responder: Responder) -> AsyncIterator[bytes]:
        """Yield the reply as server-sent events. The heartbeat keeps proxies from closing a silent connection."""
        head = _head(call, message, "chat.completion.chunk")

        def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
            return _event({**head, "choices": [choice]})

        yield chunk({"role": "assistant", "content": ""})
        streamed = ""
        async for event in responder.follow(CHAT_NAME, message.id, heartbeat_s=HEARTBEAT_S):
            if event is None:
                yield HEARTBEAT_EVENT
            elif isinstance(event, ReplyDelta):
                streamed += event.text
                yield chunk({"content": event.text})
        _, run = responder.get(CHAT_NAME, message.id)
        if run is None or run.parts is None or run.error:
            yield _event(_describe_failure(run)[1])
            return
        reply = run.reply or ""
        # What the client does not have yet, such as the reply of a command, which is not streamed.
        rest = reply[len(streamed) :] if reply.startswith(streamed) else f"\n\n{reply}"
        if rest and not streamed.strip().endswith(reply.strip()):
            yield chunk({"content": rest})
        yield chunk({}, "stop")
        if call.stream_usage:
            yield _event({**head, "choices": [], "usage": _usage_json(run)})
        yield b"data: [DONE]\n\n"


def _describe_failure(run: AnswerRun | None) -> tuple[int, dict[str, Any]]:
    if run is not None and run.cancelled:
        return 409, error_body("cancelled", "The answer was stopped.")
    if run is None or run.parts is None:
        return 503, error_body("queue_full", "The gateway is shutting down. It answers after its next start.")
    return 502, error_body(run.error or "internal", run.reply or "")


def _head(call: ChatCall, message: AcceptedMessage, kind: str) -> dict[str, Any]:
    created = int(message.at.timestamp())
    return {"id": f"chatcmpl-{message.id}", "object": kind, "created": created, "model": call.model}


def _usage_json(run: AnswerRun) -> dict[str, int]:
    usage = run.details.get("usage") or {}
    tokens_in, tokens_out = usage.get("inputTokens", 0), usage.get("outputTokens", 0)
    return {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}


def _event(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


# Reading a request. A chat program sends the whole history with every one. Kept has that history, so only the user's
# messages after the last answer are new.

MODEL_PREFIX = "kept"
CONVERSATION_HEADER = "x-kept-conversation"
CHAT_ID_HEADER = "x-openwebui-chat-id"
"""Id that a chat program gives to a chat."""
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_PART_NAMES = {"image_url": "(picture)", "input_audio": "(voice message)", "file": "(document)"}
_DIGEST_CHARS = 32


@frozen
class ChatLine:
    """Message of the person or of the assistant in a request."""

    role: str
    text: str


@frozen
class ChatCall:
    """Request of a client."""

    model: str
    """kept/NAME for an agent of that name; kept for the gateway's own."""
    user: str | None
    conversation: str
    """Name of the conversation, unique within the channel."""
    continues: bool
    """True if the client named the conversation itself, so a request without a history continues it."""
    history: tuple[ChatLine, ...]
    """Messages up to the last answer."""
    text: str
    """What the user has said since the last answer."""
    stream: bool
    stream_usage: bool
    digest: str
    """Hash of the conversation and all messages: equal for a request that is sent again."""


def read_call(body: Any, headers: Mapping[str, str]) -> ChatCall:
    """Read a request. Raise MessageRefused if it cannot be answered."""
    if not isinstance(body, dict):
        raise MessageRefused("The body has to be an object.", hint="See docs/tasks/gateway.md.")
    _refuse_unsupported(body)
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise MessageRefused("'model' is missing.", hint="GET /v1/models lists the models.")
    lines = _read_lines(body.get("messages"))
    last_answer = max((index for index, line in enumerate(lines) if line.role == "assistant"), default=-1)
    text = "\n\n".join(line.text for line in lines[last_answer + 1 :] if line.text.strip())
    if not text:
        raise MessageRefused("The last message has to be a text of the user.")
    user = read_name(body.get("user") or body.get("safety_identifier"), "user")
    conversation, continues = _find_conversation(headers, user, model, lines)
    stream_options = body.get("stream_options")
    return ChatCall(
        model=model,
        user=user,
        conversation=conversation,
        continues=continues,
        history=tuple(lines[: last_answer + 1]),
        text=text,
        stream=read_flag(body, "stream"),
        stream_usage=isinstance(stream_options, dict) and stream_options.get("include_usage") is True,
        digest=_digest([conversation, [[line.role, line.text] for line in lines]]),
    )


def _refuse_unsupported(body: Mapping[str, Any]) -> None:
    """Raise MessageRefused for a field that would change the form of the answer. Others are ignored."""
    if body.get("n") not in (None, 1):
        raise MessageRefused("'n' has to be 1: a conversation has one reply.")
    wanted = body.get("response_format")
    if isinstance(wanted, dict) and wanted.get("type") not in (None, "text"):
        raise MessageRefused("'response_format' has to be text.")
    if body.get("tool_choice") not in (None, "auto", "none"):
        raise MessageRefused("'tool_choice' is not supported: the agent uses its own tools.")


def _read_lines(messages: Any) -> list[ChatLine]:
    """Return what the person and the assistant said. The agent has instructions and tools of its own, so messages of
    other roles are left out."""
    if not isinstance(messages, list) or not messages:
        raise MessageRefused("'messages' has to be a list with at least one message.")
    lines = []
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise MessageRefused(f"'messages[{number}]' has to have one of the roles {', '.join(_ROLES)}.")
        if message["role"] in ("user", "assistant"):
            text = read_content(message.get("content"), f"messages[{number}].content")
            if text.strip() or message["role"] == "user":  # an answer without text only calls tools
                lines.append(ChatLine(message["role"], text))
    return lines


def read_content(content: Any, name: str) -> str:
    """Return the text of a message: a text, or the texts in a list of parts. Other parts are named."""
    if content is None or isinstance(content, str):
        return utf8_safe(content or "")
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise MessageRefused(f"'{name}' has to be a text or a list of parts.")
    texts = []
    for part in content:
        match part.get("type"):
            case "text" | "refusal" as kind:
                texts.append(str(part.get(kind) or ""))
            case "image_url" | "input_audio" | "file" as kind:
                texts.append(_PART_NAMES[kind])
            case _:
                raise MessageRefused(f"'{name}' has a part of an unknown type.")
    return utf8_safe("\n\n".join(text for text in texts if text))


def _find_conversation(
    headers: Mapping[str, str], user: str | None, model: str, lines: Sequence[ChatLine]
) -> tuple[str, bool]:
    """Return the name of the conversation, and whether the client chose it.

    A client that names nothing sends its first message with every request, so that identifies the chat.
    """
    named = read_name(headers.get(CONVERSATION_HEADER), CONVERSATION_HEADER)
    if named:
        return named, True
    if chat := read_name(headers.get(CHAT_ID_HEADER), CHAT_ID_HEADER):
        return chat, False
    if user:
        return user, True
    first = next((line.text for line in lines if line.role == "user"), "")
    return f"chat-{_digest([model, first])}", False


def _digest(tree: Any) -> str:
    return digest_bytes(json.dumps(tree).encode())[:_DIGEST_CHARS]

"""Requests in OpenAI's chat format: what is new in one, and which conversation it belongs to. Pure.

A chat program sends the whole history with every request. Kept has that history, so only the user's messages after the
last answer are new.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kept.channels.http_messages import MAX_NAME_CHARS, read_flag, read_name
from kept.limits import utf8_safe
from kept.remote_errors import MessageRefused, ModelUnknown
from kept.values import frozen

MODEL_PREFIX = "kept"
CONVERSATION_HEADER = "x-kept-conversation"
CHAT_ID_HEADER = "x-openwebui-chat-id"
"""Id that a chat program gives to a chat."""
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_PART_NAMES = {"image_url": "(picture)", "input_audio": "(voice message)", "file": "(document)"}
_DIGEST_CHARS = 32
_RESET = re.compile(r"\s*/(?:new|reset)\b", re.IGNORECASE)


@frozen
class ChatLine:
    """Message of the person or of the assistant in a request."""

    role: str
    text: str


@frozen
class ChatCall:
    """Request of a client."""

    model: str
    agent: str | None
    """Agent that the model names; None for the gateway's own."""
    user: str | None
    conversation: str
    """Name of the conversation, unique within the channel."""
    continues: bool
    """True if the client named the conversation itself, so a request without a history continues it."""
    history: tuple[ChatLine, ...]
    """Messages up to the last answer."""
    new: tuple[str, ...]
    """Texts of the user after the last answer."""
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
    recent = _since_reset(lines)
    last_answer = max((index for index, line in enumerate(recent) if line.role == "assistant"), default=-1)
    new = tuple(line.text for line in recent[last_answer + 1 :] if line.text.strip())
    if not new:
        raise MessageRefused("The last message has to be a text of the user.")
    user = read_name(body.get("user") or body.get("safety_identifier"), "user")
    conversation, continues = _find_conversation(headers, user, model, lines)
    stream_options = body.get("stream_options")
    return ChatCall(
        model=model,
        agent=find_agent_name(model),
        user=user,
        conversation=conversation,
        continues=continues,
        history=tuple(recent[: last_answer + 1]),
        new=new,
        stream=read_flag(body, "stream"),
        stream_usage=isinstance(stream_options, dict) and stream_options.get("include_usage") is True,
        digest=_digest([conversation, [[line.role, line.text] for line in lines]]),
    )


def find_agent_name(model: str) -> str | None:
    """Return the agent that a model names: 'kept/NAME' names one, 'kept' none. Raise ModelUnknown for any other."""
    prefix, slash, name = model.partition("/")
    if prefix != MODEL_PREFIX or (slash and not name):
        raise ModelUnknown(f"There is no model '{model[:MAX_NAME_CHARS]}'.")
    return name or None


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


def _since_reset(lines: Sequence[ChatLine]) -> Sequence[ChatLine]:
    """Return the messages since the person last began a new conversation with a command."""
    resets = (index for index, line in enumerate(lines) if line.role == "user" and _RESET.match(line.text))
    last = max(resets, default=-1)
    return lines[last:] if last == len(lines) - 1 else lines[last + 1 :]


def read_content(content: Any, name: str) -> str:
    """Return the text of a message: a text, or the texts in a list of parts. Other parts are named."""
    if content is None or isinstance(content, str):
        return utf8_safe(content or "")
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise MessageRefused(f"'{name}' has to be a text or a list of parts.")
    texts = []
    for part in content:
        match part.get("type"):
            case "text":
                texts.append(str(part.get("text") or ""))
            case "refusal":
                texts.append(str(part.get("refusal") or ""))
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
    return hashlib.sha256(json.dumps(tree).encode()).hexdigest()[:_DIGEST_CHARS]

"""Anthropic's Messages API, and servers that are compatible with it."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kept.base.limits import MAX_TOKENS, count_or_zero, utf8_safe
from kept.base.remote_errors import ContextOverflow
from kept.models.base import (
    REDACTED,
    ChatRequest,
    EndReason,
    FilePart,
    ModelEvent,
    ModelUsage,
    Part,
    TextPart,
    Thought,
    ToolOutput,
    ToolUse,
)
from kept.models.streaming import SdkChat, StreamReader, parse_arguments

DEFAULT_MAX_TOKENS = 8_192
_TAKES_EFFORT = re.compile(r"claude(?!-[23]\b)(?!-(?:opus|sonnet|haiku)-4(?:-[0-5])?(?:-?\d{8}|@.*)?$)")
"""Names of models that take an effort. Earlier ones, and others behind this API, think as by default."""
_CACHED = {"type": "ephemeral"}
_INVALID_ID_CHARS = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that the API refuses in ids of tool calls, which may come from another provider."""


@dataclass
class _OpenBlock:
    """A tool call or a thought that is still arriving."""

    start: Any
    text: str = ""
    """Its arguments, or its text, so far."""
    signature: str = ""


@dataclass
class AnthropicStreamReader(StreamReader):
    """Assembles one answer from the events of the SDK."""

    reasons: ClassVar[Mapping[str, EndReason]] = {
        "end_turn": "end",
        "stop_sequence": "end",
        "pause_turn": "end",
        "tool_use": "tools",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "refusal": "refused",
    }

    _open: dict[int, _OpenBlock] = field(default_factory=dict)
    _calls: int = 0
    _counts: dict[str, Any] = field(default_factory=dict)

    def read(self, piece: Any) -> ModelEvent | None:
        usage = getattr(getattr(piece, "message", piece), "usage", None)
        if usage is not None:  # totals, so later ones replace earlier ones
            self._counts |= {name: count for name, count in vars(usage).items() if count is not None}
            self.usage = usage_of(self._counts)
        delta: Any = getattr(piece, "delta", None)
        match getattr(delta, "type", piece.type):
            case "content_block_start" if piece.content_block.type in ("tool_use", "thinking", "redacted_thinking"):
                start = piece.content_block
                encrypted = REDACTED + start.data if start.type == "redacted_thinking" else ""
                self._open[piece.index] = _OpenBlock(start, signature=encrypted)
            case "text_delta":
                return self.add_text(delta.text)
            case "input_json_delta":
                self._open[piece.index].text += delta.partial_json
            case "thinking_delta":
                self._open[piece.index].text += utf8_safe(delta.thinking)
            case "signature_delta":
                self._open[piece.index].signature += delta.signature
            case "content_block_stop" if piece.index in self._open:
                block = self._open.pop(piece.index)
                if block.start.type != "tool_use":
                    return Thought(block.text, block.signature)
                self._calls += 1
                return ToolUse(block.start.id, block.start.name, parse_arguments(block.text))
            case "message_delta":
                self.reason = delta.stop_reason or self.reason
        return None

    def finish(self) -> Iterator[ModelEvent]:
        if any(block.start.type == "tool_use" for block in self._open.values()):
            self.reason = None  # it broke off
        if self.reason == "model_context_window_exceeded" and not self.texts and not self._calls:
            raise ContextOverflow(f"{self.chat.label}: the request leaves no room for an answer.")
        return super().finish()


_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


def usage_of(counts: Mapping[str, Any]) -> ModelUsage:
    """Return the tokens that counts in the words of this API mean."""
    fresh, written, cached, output = (count_or_zero(counts.get(name), MAX_TOKENS) for name in _COUNTS)
    return ModelUsage(fresh + written + cached, output, cached)


class AnthropicChat(SdkChat):
    provider = "anthropic"
    label = "Anthropic"
    client_class = "AsyncAnthropic"
    resource = "messages"
    reader_class = AnthropicStreamReader
    home_url = "https://api.anthropic.com"
    default_model = "claude-sonnet-5-5"

    def base_url(self) -> str:
        return self.account.endpoint.public_url.removesuffix("/v1")

    def body(self, request: ChatRequest) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [
            {
                "role": turn.role,
                # The API requires tool results before any other content of their turn.
                "content": [
                    _block(part) for part in sorted(turn.parts, key=lambda part: not isinstance(part, ToolOutput))
                ],
            }
            for turn in request.turns
        ]
        # The provider caches everything up to each of these blocks: the turns that the next message repeats, and the
        # whole request for the next step of this turn.
        for message in (*messages[: request.stable_turns][-1:], *messages[-1:]):
            message["content"][-1]["cache_control"] = _CACHED
        body: dict[str, Any] = {
            "model": self.name,
            "max_tokens": request.max_tokens or self.max_output_tokens or DEFAULT_MAX_TOKENS,
            "messages": messages,
        }
        last = next((turn.parts for turn in reversed(request.turns) if turn.role == "assistant"), ())
        # The API refuses to think on after tool calls that no thought precedes, as in a turn that another model began.
        is_unthought = any(isinstance(part, ToolUse) for part in last) and not isinstance(last[0], Thought)
        if request.thinking == "off" or (request.thinking and is_unthought):
            body["thinking"] = {"type": "disabled"}
        elif request.thinking and _TAKES_EFFORT.match(self.name):
            body["thinking"] = {"type": "adaptive"}
            body["output_config"] = {"effort": request.thinking}
        if request.system.strip():
            # Tools and system prompt come first and rarely change.
            body["system"] = [{"type": "text", "text": utf8_safe(request.system), "cache_control": _CACHED}]
        if request.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
                for tool in request.tools
            ]
        return body


def _block(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case FilePart(media_type, data):
            kind = "image" if media_type.startswith("image/") else "document"
            content = base64.b64encode(data).decode()
            return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": content}}
        case Thought(text, signature):
            if signature.startswith(REDACTED):
                return {"type": "redacted_thinking", "data": signature.removeprefix(REDACTED)}
            return {"type": "thinking", "thinking": text, "signature": signature}
        case ToolUse():
            return {
                "type": "tool_use",
                "id": _INVALID_ID_CHARS.sub("_", part.id) or "_",
                "name": part.name,
                "input": dict(part.arguments),
            }
        case ToolOutput():
            block = {
                "type": "tool_result",
                "tool_use_id": _INVALID_ID_CHARS.sub("_", part.call_id) or "_",
                "is_error": part.is_error,
            }
            return {**block, "content": part.text} if part.text.strip() else block

"""OpenAI's chat completions API, which Ollama, llama.cpp, vLLM and many others implement too."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar

from kept.base.limits import MAX_TOKENS, count_or_zero, utf8_safe
from kept.models.base import (
    ChatRequest,
    EndReason,
    FilePart,
    ModelEvent,
    ModelUsage,
    TextDelta,
    TextPart,
    ToolOutput,
    ToolUse,
    Turn,
)
from kept.models.streaming import SdkChat, StreamReader, parse_arguments


@dataclass
class _ToolCallDraft:
    """Tool call whose arguments are still arriving."""

    id: str
    name: str = ""
    arguments: str = ""


@dataclass
class OpenAIStreamReader(StreamReader):
    """Assembles one answer from the chunks of the SDK. Servers differ in which fields they fill."""

    reasons: ClassVar[Mapping[str, EndReason]] = {
        "stop": "end",
        "length": "length",
        "tool_calls": "tools",
        "function_call": "tools",
        "content_filter": "refused",
    }

    _calls: list[_ToolCallDraft] = field(default_factory=list)
    _by_index: dict[int | None, _ToolCallDraft] = field(default_factory=dict)
    _refused: bool = False

    def read(self, piece: Any) -> TextDelta | None:
        if getattr(piece, "usage", None):
            details = getattr(piece.usage, "prompt_tokens_details", None)
            counts = (
                getattr(piece.usage, "prompt_tokens", None),
                getattr(piece.usage, "completion_tokens", None),
                getattr(details, "cached_tokens", None),
            )
            self.usage = ModelUsage(*(count_or_zero(count, MAX_TOKENS) for count in counts))
        text = "".join([self._read_choice(choice) for choice in getattr(piece, "choices", None) or ()])
        return self.add_text(text) if text else None

    def _read_choice(self, choice: Any) -> str:
        self.reason = choice.finish_reason or self.reason
        delta = choice.delta
        for piece in getattr(delta, "tool_calls", None) or ():
            self._read_call(piece)
        refusal = getattr(delta, "refusal", None) or ""
        self._refused = self._refused or bool(refusal)
        return (getattr(delta, "content", None) or "") + refusal

    def _read_call(self, piece: Any) -> None:
        """Add a piece to its call. Calls differ by index; if all share one or have none, a new id starts a new call."""
        index = getattr(piece, "index", None)
        call_id, function = piece.id or "", piece.function
        call = self._by_index.get(index)
        if call is None or (call_id and call.id and call_id != call.id):
            call = self._by_index[index] = _ToolCallDraft(call_id)
            self._calls.append(call)
        call.id = call.id or call_id
        call.name = call.name or (function and function.name) or ""
        call.arguments += (function and function.arguments) or ""

    def finish(self) -> Iterator[ModelEvent]:
        """Yield the tool calls and the last event."""
        if self.reason is not None:
            for number, call in enumerate(self._calls, 1):
                yield ToolUse(call.id or f"call_{number}", call.name, parse_arguments(call.arguments))
            if self._refused:
                self.reason = "content_filter"
            elif self._calls and self.reasons.get(self.reason, "end") == "end":
                self.reason = "tool_calls"
        yield from super().finish()


class OpenAIChat(SdkChat):
    provider = "openai"
    label = "OpenAI"
    client_class = "AsyncOpenAI"
    resource = "chat.completions"
    reader_class = OpenAIStreamReader
    home_url = "https://api.openai.com/v1"
    default_model = "gpt-5.4-mini"

    def base_url(self) -> str:
        endpoint = self.account.endpoint
        return endpoint.public_url + ("" if endpoint.path else "/v1")

    def body(self, request: ChatRequest) -> dict[str, Any]:
        system = [{"role": "system", "content": utf8_safe(request.system)}] if request.system.strip() else []
        body: dict[str, Any] = {
            "model": self.name,
            "messages": [*system, *chain(*(_messages(turn) for turn in request.turns))],
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": dict(tool.parameters),
                    },
                }
                for tool in request.tools
            ]
        if request.thinking is not None:
            body["reasoning_effort"] = "none" if request.thinking == "off" else request.thinking
        limit = request.max_tokens or self.max_output_tokens
        if limit:
            # OpenAI's own models accept only the new name; many compatible servers know only the old one.
            body["max_completion_tokens" if self.account.is_home else "max_tokens"] = limit
        return body


def _messages(turn: Turn) -> Iterator[dict[str, Any]]:
    """Yield the messages of a turn. The API wants each tool result as a separate message, before any other."""
    for part in turn.parts:
        if isinstance(part, ToolOutput):
            text = f"The tool failed: {part.text}" if part.is_error else part.text
            yield {"role": "tool", "tool_call_id": part.call_id, "content": text}
    text = "\n\n".join(part.text for part in turn.parts if isinstance(part, TextPart))
    calls = [_call(part) for part in turn.parts if isinstance(part, ToolUse)]
    if calls:
        yield {"role": turn.role, "content": text or None, "tool_calls": calls}
    files = [part for part in turn.parts if isinstance(part, FilePart)]
    if files and not calls:
        yield {"role": turn.role, "content": [{"type": "text", "text": text}, *map(_file, files)]}
    elif text and not calls:
        yield {"role": turn.role, "content": text}


def _file(part: FilePart) -> dict[str, Any]:
    url = f"data:{part.media_type};base64,{base64.b64encode(part.data).decode()}"
    if part.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": part.name or "document.pdf", "file_data": url}}


def _call(use: ToolUse) -> dict[str, Any]:
    arguments = json.dumps(dict(use.arguments), ensure_ascii=False)
    return {"id": use.id, "type": "function", "function": {"name": use.name, "arguments": arguments}}

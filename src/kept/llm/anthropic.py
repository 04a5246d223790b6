"""Anthropic's Messages API, and whatever speaks it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from typing import Any, Literal

from kept.errors import ContextOverflow
from kept.limits import storable
from kept.llm.account import Account, error_fields
from kept.llm.base import (
    ChatRequest,
    Finished,
    ModelEvent,
    ModelUsage,
    Part,
    TextDelta,
    TextPart,
    ToolOutput,
    ToolUse,
    Turn,
)
from kept.llm.listen import clean, count_told, parse_arguments, usage_or_estimate
from kept.llm.sdk import CONNECT_TIMEOUT_S, MAX_RETRIES, SdkChat
from kept.llm.turns import tidy_turns

DEFAULT_MAX_TOKENS = 8_192
_OTHER_THAN_ID = re.compile(r"[^A-Za-z0-9_-]")
_REASONS: Mapping[str, Literal["end", "tools", "length", "refused"]] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "pause_turn": "end",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}


class AnthropicChat(SdkChat):
    provider = "anthropic"

    def connect(self) -> Any:
        import anthropic

        return anthropic.AsyncAnthropic(
            api_key=self.account.key or "none",
            base_url=self.account.endpoint.public_url.removesuffix("/v1"),
            timeout=anthropic.Timeout(self.timeout_s, connect=CONNECT_TIMEOUT_S),
            max_retries=MAX_RETRIES,
            default_query=self.account.query() or None,
            http_client=self.http_client(),
        )

    async def ask(self, client: Any, request: ChatRequest) -> AsyncGenerator[ModelEvent | None, None]:
        import anthropic
        import httpx2

        try:
            stream = await client.messages.create(**self._body(request), stream=True)
            async with stream:
                async for event in Reader(request, self.account).read(stream):
                    yield event
        except anthropic.APIStatusError as exc:
            kind, message = error_fields(exc.body)
            status = None if exc.status_code == 200 else exc.status_code
            raise self.account.explain(status, kind, message or exc.message) from exc
        except (anthropic.APIConnectionError, httpx2.HTTPError, httpx2.StreamError) as exc:
            raise self.account.unreachable() from exc
        except (anthropic.AnthropicError, ValueError, LookupError, AttributeError, TypeError) as exc:
            raise self.account.garbled() from exc

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.name,
            "max_tokens": request.max_tokens or self.max_output_tokens or DEFAULT_MAX_TOKENS,
            "messages": [_message(turn) for turn in tidy_turns(request.turns)],
        }
        if request.system.strip():
            # Tools and system prompt come first and change least: the next request finds them in the cache.
            body["system"] = [
                {"type": "text", "text": storable(request.system), "cache_control": {"type": "ephemeral"}}
            ]
        if request.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
                for tool in request.tools
            ]
        return body


def _message(turn: Turn) -> dict[str, Any]:
    # Results of tools have to stand before everything else that is said in their turn.
    parts: Iterable[Part] = sorted(turn.parts, key=lambda part: not isinstance(part, ToolOutput))
    return {"role": turn.role, "content": [_block(part) for part in parts]}


def _block(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ToolUse():
            return {"type": "tool_use", "id": _tool_id(part.id), "name": part.name, "input": dict(part.arguments)}
        case ToolOutput():
            block = {"type": "tool_result", "tool_use_id": _tool_id(part.call_id), "is_error": part.is_error}
            return {**block, "content": part.text} if part.text.strip() else block


def _tool_id(given: str) -> str:
    """Calls of an earlier turn may be another provider's, whose ids have signs that are not taken here."""
    return _OTHER_THAN_ID.sub("_", given) or "_"


class Reader:
    """Puts one answer together."""

    def __init__(self, request: ChatRequest, account: Account) -> None:
        self._request = request
        self._account = account
        self._open: dict[int, tuple[str, str, list[str]]] = {}
        self._calls = 0
        self._said: list[str] = []
        self._used: dict[str, int] = {}
        self._reason: str | None = None

    async def read(self, stream: AsyncIterator[Any]) -> AsyncGenerator[ModelEvent | None, None]:
        async for event in stream:
            yield self._take(event)
        if self._reason is None or self._open:
            raise self._account.broke_off()
        if self._reason == "model_context_window_exceeded" and not self._said and not self._calls:
            raise ContextOverflow(f"{self._account.label}: the request leaves no room for an answer.")
        usage = usage_or_estimate(_usage(self._used), self._request, "".join(self._said))
        yield Finished(_REASONS.get(self._reason, "end"), usage)

    def _take(self, event: Any) -> ModelEvent | None:
        match event.type:
            case "message_start":
                _add_usage(self._used, event.message.usage)
            case "content_block_start" if event.content_block.type == "tool_use":
                self._open[event.index] = (event.content_block.id, event.content_block.name, [])
            case "content_block_delta":
                return self._take_delta(event.index, event.delta)
            case "content_block_stop" if event.index in self._open:
                call_id, name, pieces = self._open.pop(event.index)
                self._calls += 1
                return ToolUse(call_id, name, parse_arguments("".join(pieces)))
            case "message_delta":
                self._reason = event.delta.stop_reason or self._reason
                _add_usage(self._used, event.usage)
        return None

    def _take_delta(self, index: int, delta: Any) -> ModelEvent | None:
        if delta.type == "input_json_delta":
            self._open[index][2].append(delta.partial_json)
        if delta.type != "text_delta":
            return None
        self._said.append(clean(delta.text))
        return TextDelta(self._said[-1])


def _add_usage(used: dict[str, int], told: Any) -> None:
    """Later figures are totals, and take the place of earlier ones."""
    for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
        value = getattr(told, name, None)
        if value is not None:
            used[name] = count_told(value)


def _usage(used: Mapping[str, int]) -> ModelUsage:
    cached = used.get("cache_read_input_tokens", 0)
    read = used.get("input_tokens", 0) + cached + used.get("cache_creation_input_tokens", 0)
    return ModelUsage(read, used.get("output_tokens", 0), cached)

"""OpenAI's chat completions, which Ollama, llama.cpp, vLLM and many others speak too."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from typing import Any, Literal

from kept.limits import storable
from kept.llm.account import Account, error_fields
from kept.llm.base import ChatRequest, Finished, ModelEvent, ModelUsage, TextDelta, TextPart, ToolOutput, ToolUse, Turn
from kept.llm.listen import clean, count_told, parse_arguments, usage_or_estimate
from kept.llm.sdk import CONNECT_TIMEOUT_S, MAX_RETRIES, SdkChat
from kept.llm.turns import tidy_turns

_REASONS: Mapping[str, Literal["end", "tools", "length", "refused"]] = {
    "stop": "end",
    "length": "length",
    "tool_calls": "tools",
    "function_call": "tools",
    "content_filter": "refused",
}


class OpenAIChat(SdkChat):
    provider = "openai"

    def connect(self) -> Any:
        import openai

        endpoint = self.account.endpoint
        client = openai.AsyncOpenAI(
            api_key=self.account.key or "none",
            base_url=endpoint.public_url + ("" if endpoint.path else "/v1"),
            timeout=openai.Timeout(self.timeout_s, connect=CONNECT_TIMEOUT_S),
            max_retries=MAX_RETRIES,
            default_query=self.account.query() or None,
            http_client=self.http_client(),
        )
        client.organization = client.project = None
        return client

    async def ask(self, client: Any, request: ChatRequest) -> AsyncGenerator[ModelEvent | None, None]:
        import httpx2
        import openai

        try:
            stream = await client.chat.completions.create(**self._body(request), stream=True)
            async with stream:
                async for event in Reader(request, self.account).read(stream):
                    yield event
        except openai.APIStatusError as exc:
            kind, message = error_fields(exc.body)
            raise self.account.explain(exc.status_code, kind, message or exc.message) from exc
        except (openai.APIConnectionError, httpx2.HTTPError, httpx2.StreamError) as exc:
            raise self.account.unreachable() from exc
        except openai.APIError as exc:
            kind, message = error_fields(exc.body)
            raise self.account.explain(None, kind, message or exc.message) from exc
        except (openai.OpenAIError, ValueError, LookupError, AttributeError, TypeError) as exc:
            raise self.account.garbled() from exc

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        system = [{"role": "system", "content": storable(request.system)}] if request.system.strip() else []
        body: dict[str, Any] = {
            "model": self.name,
            "messages": [*system, *(one for turn in tidy_turns(request.turns) for one in _messages(turn))],
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
        limit = request.max_tokens or self.max_output_tokens
        if limit:
            # The new name is the only one that OpenAI's own models take, and the old one the only one many others know.
            body["max_completion_tokens" if self.account.is_home else "max_tokens"] = limit
        return body


def _messages(turn: Turn) -> Iterator[dict[str, Any]]:
    """Each result of a tool is a message of its own, before what else was said."""
    for part in turn.parts:
        if isinstance(part, ToolOutput):
            text = f"The tool failed: {part.text}" if part.is_error else part.text
            yield {"role": "tool", "tool_call_id": part.call_id, "content": text}
    text = "\n\n".join(part.text for part in turn.parts if isinstance(part, TextPart))
    calls = [_call(part) for part in turn.parts if isinstance(part, ToolUse)]
    if calls:
        yield {"role": turn.role, "content": text or None, "tool_calls": calls}
    elif text:
        yield {"role": turn.role, "content": text}


def _call(use: ToolUse) -> dict[str, Any]:
    arguments = json.dumps(dict(use.arguments), ensure_ascii=False)
    return {"id": use.id, "type": "function", "function": {"name": use.name, "arguments": arguments}}


class _Call:
    """A tool call that is still coming in."""

    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.name = name
        self.pieces: list[str] = []


class Reader:
    """Puts one answer together. Servers differ in what they number and what they leave out."""

    def __init__(self, request: ChatRequest, account: Account) -> None:
        self._request = request
        self._account = account
        self._calls: list[_Call] = []
        self._by_index: dict[int | None, _Call] = {}
        self._said: list[str] = []
        self._usage = ModelUsage()
        self._reason: str | None = None
        self._refused = False

    async def read(self, stream: AsyncIterator[Any]) -> AsyncGenerator[ModelEvent | None, None]:
        async for chunk in stream:
            if getattr(chunk, "usage", None):
                self._usage = _usage(chunk.usage)
            for choice in getattr(chunk, "choices", None) or ():
                text = self._take(choice)
                if text:
                    yield TextDelta(text)
            yield None
        if self._reason is None:
            raise self._account.broke_off()
        for number, call in enumerate(self._calls, 1):
            yield ToolUse(call.id or f"call_{number}", call.name, parse_arguments("".join(call.pieces)))
        yield Finished(self._end(), usage_or_estimate(self._usage, self._request, "".join(self._said)))

    def _take(self, choice: Any) -> str:
        self._reason = choice.finish_reason or self._reason
        delta = choice.delta
        for piece in getattr(delta, "tool_calls", None) or ():
            self._take_call(piece)
        refusal = getattr(delta, "refusal", None) or ""
        self._refused = self._refused or bool(refusal)
        text = clean((getattr(delta, "content", None) or "") + refusal)
        self._said.append(text)
        return text

    def _take_call(self, piece: Any) -> None:
        """A call is known by its index; where all have the same, or none, by an id that is new."""
        index = getattr(piece, "index", None)
        call_id, function = piece.id or "", piece.function
        known = self._by_index.get(index)
        if known is None or (call_id and known.id and call_id != known.id):
            known = self._by_index[index] = _Call(call_id, "")
            self._calls.append(known)
        known.id = known.id or call_id
        known.name = known.name or (function and function.name) or ""
        known.pieces.append((function and function.arguments) or "")

    def _end(self) -> Literal["end", "tools", "length", "refused"]:
        if self._refused:
            return "refused"
        reason = _REASONS.get(self._reason or "", "end")
        return "tools" if self._calls and reason == "end" else reason


def _usage(told: Any) -> ModelUsage:
    details = getattr(told, "prompt_tokens_details", None)
    return ModelUsage(
        count_told(getattr(told, "prompt_tokens", None)),
        count_told(getattr(told, "completion_tokens", None)),
        count_told(getattr(details, "cached_tokens", None)),
    )

"""Streams of chat models: idle timeout, tool arguments, and the base class of models that use a provider's SDK."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, NoReturn

from kept.errors import ModelFailed
from kept.limits import MAX_TOKENS, count_or_zero, utf8_safe
from kept.llm.base import MALFORMED, ChatRequest, ModelEvent, TextDelta
from kept.llm.bounded import AnswerLimits
from kept.llm.model_service import ModelService

MAX_ANSWER_CHARS = 2_000_000
"""No model writes this much. A server that does is not a model."""
MAX_RETRIES = 2
"""Retries by the SDK, before an answer has begun. The agent decides whether to retry an answer that broke off."""
CONNECT_TIMEOUT_S = 10.0
_MAX_ANSWER_TIMEOUTS = 12
"""A whole answer may take this many idle timeouts: an hour, with the default of five minutes."""
_MALFORMED_CHARS = 2_000
_SENT_HEADERS = re.compile(
    r"accept|accept-encoding|anthropic-(?:beta|version)|connection|content-length|content-type|host|idempotency-key"
    r"|transfer-encoding|user-agent|x-stainless-.*",
    re.IGNORECASE,
)
"""Headers that an SDK may set. Credentials are not among them: `SdkChat` sets those."""

RawEvents = AsyncGenerator[ModelEvent | None, None]
"""Events of one answer. None is a heartbeat: the model is alive but has produced nothing to report."""


async def with_idle_timeout(
    start: Callable[[], Awaitable[RawEvents]], *, timeout_s: float, label: str
) -> AsyncGenerator[ModelEvent, None]:
    """Yield the events of a stream without its heartbeats.

    Raise ModelFailed after ``timeout_s`` without an event, or if the answer does not end. Bytes that only keep the
    connection open do not count: a server may send them for ever. ``start`` opens the stream and is not timed.
    """
    chars = 0
    loop = asyncio.get_running_loop()
    async with aclosing(await start()) as events:
        end_s = loop.time() + timeout_s * _MAX_ANSWER_TIMEOUTS
        while True:
            idle_until_s = loop.time() + timeout_s
            try:
                async with asyncio.timeout_at(min(idle_until_s, end_s)):
                    event = await anext(events)
            except StopAsyncIteration:
                return
            except TimeoutError:
                reason = f"sent nothing for {timeout_s:g} s"
                if end_s < idle_until_s:
                    reason = f"did not finish within {timeout_s * _MAX_ANSWER_TIMEOUTS:g} s"
                raise ModelFailed(f"{label} {reason}.", hint="Try again, or raise model.timeout_s.") from None
            if isinstance(event, TextDelta):
                chars += len(event.text)
                if chars > MAX_ANSWER_CHARS:
                    raise ModelFailed(f"{label}: the answer did not end.", hint="Check model.name and model.base_url.")
            if event is not None:
                yield event


def parse_arguments(raw: str) -> Mapping[str, Any]:
    """Return the arguments of a tool call. Return text that is not a JSON object under `MALFORMED`.

    The tool then refuses the call, the model reads why, and can try again.
    """
    if not raw.strip():
        return {}
    try:
        arguments = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return {MALFORMED: utf8_safe(raw[:_MALFORMED_CHARS])}
    if arguments is None:
        return {}
    return arguments if isinstance(arguments, dict) else {MALFORMED: utf8_safe(raw[:_MALFORMED_CHARS])}


def _refuse_constant(word: str) -> NoReturn:
    """Refuse NaN and the infinities: they are not JSON, and a transcript could not store them."""
    raise ValueError(word)


def read_count(value: Any) -> int:
    """Return a token count that a server reports, or 0 if it cannot be true."""
    return count_or_zero(value, MAX_TOKENS)


class SdkChat(ABC):
    """Chat model that is called through its provider's SDK."""

    provider: str
    answer_limits = AnswerLimits()
    runs_tools = True
    writes = True

    def __init__(
        self, service: ModelService, *, context_window: int, timeout_s: float, max_output_tokens: int | None = None
    ) -> None:
        self.name = service.name
        self.context_window = context_window
        self.service = service
        self.account = service.account
        self.timeout_s = timeout_s
        self.max_output_tokens = max_output_tokens
        self._client: Any = None
        self._lock = threading.Lock()

    @property
    def api_key(self) -> str:
        return self.account.key or "none"  # without one an SDK would look for a key in the environment

    def stream(self, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        async def start() -> RawEvents:
            # Importing an SDK takes a second or two. It must not block the event loop, and is not the model's silence.
            client = await asyncio.to_thread(self._open_client)
            return self.ask(client, request)

        return with_idle_timeout(start, timeout_s=self.timeout_s, label=self.service.label)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _open_client(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = self.make_client()
            return self._client

    def client_options(self, sdk: Any) -> dict[str, Any]:
        """Return the arguments that the clients of all SDKs share. ``sdk`` is the imported package."""
        return {
            "api_key": self.api_key,
            "timeout": sdk.Timeout(self.timeout_s, connect=CONNECT_TIMEOUT_S),
            "max_retries": MAX_RETRIES,
            "default_query": self.account.query() or None,
            "http_client": self._http_client(),
        }

    def _http_client(self) -> Any:
        """Return the HTTP client for the SDK.

        It follows no redirect, which would take the key elsewhere, and uses a proxy from the environment only for
        addresses outside this machine.
        """
        import httpx2

        from kept.llm.bounded_stream import bounding

        return httpx2.AsyncClient(
            follow_redirects=False,
            trust_env=not self.account.endpoint.is_loopback,
            timeout=httpx2.Timeout(self.timeout_s, connect=CONNECT_TIMEOUT_S),
            headers={"accept-encoding": "identity"},
            event_hooks={
                "request": [self._set_headers],
                "response": [bounding(self.service.label, self.answer_limits)],
            },
        )

    async def _set_headers(self, request: Any) -> None:
        """Send the SDK's own headers and the account's credentials, and nothing else.

        The SDKs add headers from environment variables (organization, project, custom headers) whatever the address is;
        here the settings alone decide what is sent where.
        """
        for name in set(request.headers):
            if not _SENT_HEADERS.fullmatch(name):
                del request.headers[name]
        request.headers.update({"Authorization": f"Bearer {self.api_key}", **self.account.basic_auth()})

    @abstractmethod
    def make_client(self) -> Any:
        """Return the SDK's client. Pass every argument that it would otherwise read from the environment."""

    @abstractmethod
    def ask(self, client: Any, request: ChatRequest) -> RawEvents:
        """Yield the events of one answer. Raise only ModelError."""

"""Chat models that are called through a provider's SDK: the account, errors, limits of an answer, and the stream.

The SDKs join an event from its lines and copy it each time, so an endless event would take quadratic time. It must not
reach them.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, ClassVar, NoReturn

from kept.base.limits import utf8_safe
from kept.base.net import choose_account
from kept.base.net.client import CONTEXT_OVERFLOW
from kept.base.remote_errors import (
    ContextOverflow,
    ModelError,
    ModelFailed,
    ModelRefused,
    ModelSilent,
    ModelUnavailable,
)
from kept.config.agent_config import KEY_VARIABLES, ProviderKeys
from kept.config.schema import ModelSettings
from kept.models.base import (
    DOCUMENTS,
    MALFORMED,
    PICTURES,
    ChatRequest,
    EndReason,
    Finished,
    ModelEvent,
    ModelUsage,
    TextDelta,
    usage_or_estimate,
)

# the service, and the meaning of its errors

_NO_CREDIT = re.compile(r"insufficient_quota|billing|credit balance|exceeded your current quota", re.IGNORECASE)
_PASSING = (408, 409, 425, 429)
_PASSING_TYPES = re.compile(r"overloaded|api_error|rate_limit|timeout|server_error|unavailable", re.IGNORECASE)


def error_fields(body: Any) -> tuple[str, str]:
    """Return the type or code of an error, and its message. Servers nest them differently; a missing one is empty."""
    inner = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(inner, Mapping):
        return "", str(inner or "")
    kind = " ".join(str(inner[name]) for name in ("type", "code") if inner.get(name))
    return kind, str(inner.get("message") or "")


# limits of an answer

HINT = "Check model.name and model.base_url."
MAX_ANSWER_BYTES = 64_000_000
MAX_EVENT_BYTES = 4_000_000


def _bounding(label: str) -> Callable[[Any], Awaitable[None]]:
    """Return a hook that bounds what is read of a response: the whole, and one event of it. It is made here because
    importing httpx2 takes long."""
    import httpx2

    async def bound(response: httpx2.Response) -> None:
        stream: Any = response.stream
        encoding = response.headers.get("content-encoding", "identity")

        class BoundedStream(httpx2.AsyncByteStream):
            aclose = stream.aclose

            async def __aiter__(self) -> AsyncIterator[bytes]:
                if encoding != "identity":
                    # It was not asked for, and a few bytes can unpack to any number.
                    raise ModelFailed(f"{label} sent a compressed answer ({encoding}).", hint=HINT)
                total = event = 0
                async for piece in stream:
                    # An event that ends between two pieces counts with the next one, far below the limit.
                    end = max(piece.rfind(b"\n\n"), piece.rfind(b"\r\n\r\n"))
                    total += len(piece)
                    event = event + len(piece) if end < 0 else len(piece) - end
                    if total > MAX_ANSWER_BYTES or event > MAX_EVENT_BYTES:
                        raise ModelFailed(f"{label} sent more than can be an answer.", hint=HINT)
                    yield piece

        response.stream = BoundedStream()

    return bound


# streams

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


@dataclass
class StreamReader(ABC):
    """Assembles one answer from the pieces of an SDK's stream."""

    reasons: ClassVar[Mapping[str, EndReason]]
    """Reasons for the end of an answer, in the words of the API."""

    request: ChatRequest
    chat: SdkChat
    texts: list[str] = field(default_factory=list)
    usage: ModelUsage = ModelUsage()
    reason: str | None = None

    @abstractmethod
    def read(self, piece: Any) -> ModelEvent | None: ...

    def add_text(self, text: str) -> TextDelta:
        self.texts.append(utf8_safe(text))
        return TextDelta(self.texts[-1])

    def finish(self) -> Iterator[ModelEvent]:
        """Yield the last events. Raise ModelError if the answer is incomplete."""
        if self.reason is None:
            raise self.chat.failed("broke off before the end of its answer")
        yield Finished(
            self.reasons.get(self.reason, "end"), usage_or_estimate(self.usage, self.request, "".join(self.texts))
        )


class StreamedChat(ABC):
    """Chat model whose answer ends when it says nothing for too long."""

    label: str
    """Name of the provider in messages."""
    timeout_s: float

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of one answer without its heartbeats.

        Raise ModelFailed after ``timeout_s`` without an event, or if the answer does not end. Bytes that only keep the
        connection open do not count: a server may send them for ever.
        """
        chars = 0
        loop = asyncio.get_running_loop()
        async with aclosing(self.ask(request)) as events:
            end_s = loop.time() + self.timeout_s * _MAX_ANSWER_TIMEOUTS
            while True:
                idle_until_s = loop.time() + self.timeout_s
                try:
                    async with asyncio.timeout_at(min(idle_until_s, end_s)):
                        event = await anext(events)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    reason = f"sent nothing for {self.timeout_s:g} s"
                    if end_s < idle_until_s:
                        reason = f"did not finish within {self.timeout_s * _MAX_ANSWER_TIMEOUTS:g} s"
                    hint = "Try again, or raise model.timeout_s."
                    raise ModelSilent(f"{self.label} {reason}.", hint=hint) from None
                if isinstance(event, TextDelta):
                    chars += len(event.text)
                    if chars > MAX_ANSWER_CHARS:
                        raise ModelFailed(f"{self.label}: the answer did not end.", hint=HINT)
                if event is not None:
                    yield event

    @abstractmethod
    def ask(self, request: ChatRequest) -> RawEvents:
        """Return the events of one answer. Raise only ModelError."""


class SdkChat(StreamedChat):
    """Chat model that is called through its provider's SDK, and the meaning of its errors."""

    provider: str
    home_url: ClassVar[str]
    client_class: ClassVar[str]
    """Name of the client in the SDK."""
    resource: ClassVar[str]
    """Attribute of the client that creates answers."""
    reader_class: ClassVar[type[StreamReader]]
    default_model: ClassVar[str]
    """Used at the provider's own address unless the settings name another."""
    runs_tools = True
    writes = True

    def __init__(self, settings: ModelSettings, keys: ProviderKeys) -> None:
        """Raise ModelUnavailable if the name of the model, its key or its library is missing."""
        self.account = choose_account(
            self.home_url,
            base_url=settings.base_url,
            api_key=settings.api_key,
            environment_key=keys.find(self.provider),
            setting="model.base_url",
        )
        is_home = self.account.is_home
        if not is_home:
            self.label = f"The model at {self.account.endpoint.origin}"
        self.name = settings.name or (self.default_model if is_home else "")
        if not self.name:
            hint = "Set agents.defaults.model.name in config.yaml."
            raise ModelUnavailable(f"{self.label} needs a model's name.", hint=hint)
        if is_home and not self.account.key:
            raise ModelUnavailable(f"There is no API key for {self.label}.", hint=self._key_hint())
        if not self.account.has_valid_key:
            message = f"The API key for {self.label} has characters that no key has."
            raise ModelUnavailable(message, hint=self._key_hint())
        if importlib.util.find_spec(self.provider) is None:
            hint = f"pip install 'kept[{self.provider}]'"
            raise ModelUnavailable(f"The library for {self.label} is not installed.", hint=hint)
        # Many compatible servers refuse a request with a picture.
        chosen = settings.media if settings.media is not None else (("image", "pdf") if is_home else ())
        self.media = frozenset().union(*({"image": PICTURES, "pdf": DOCUMENTS}[kind] for kind in chosen))
        self.context_window = settings.context_window
        self.timeout_s = settings.timeout_s
        self.max_output_tokens = settings.max_output_tokens
        self._client: Any = None
        self._lock = threading.Lock()

    def _key_hint(self) -> str:
        variables = f"{' or '.join(KEY_VARIABLES[self.provider])}, or " if self.account.is_home else ""
        return f"Set {variables}agents.defaults.model.api_key in config.yaml."

    def explain(self, status: int | None, kind: str, message: str) -> ModelError:
        """Return the error that a reply means.

        ``kind`` is the provider's type or code. An error without a status arrived inside a stream.
        """
        detail = self.account.clean_message(message)
        if CONTEXT_OVERFLOW.search(f"{kind} {message}") or status == 413:
            return ContextOverflow(f"{self.label}: the request is longer than the model takes ({detail}).")
        if status in (401, 403) or kind in ("authentication_error", "permission_error"):
            return ModelUnavailable(f"{self.label} does not accept the key ({detail}).", hint=self._key_hint())
        if status == 402 or _NO_CREDIT.search(f"{kind} {message}"):
            return ModelUnavailable(f"{self.label}: the account is used up ({detail}).", hint="Check its billing.")
        if status == 404:
            return ModelUnavailable(f"{self.label} does not know the model '{self.name}' ({detail}).", hint=HINT)
        if status is None or status in _PASSING or status >= 500 or _PASSING_TYPES.search(kind):
            return self.failed(f"cannot answer at the moment ({detail})")
        return ModelRefused(f"{self.label} does not accept the request ({detail}).", hint="Check model.name.")

    def failed(self, what: str, *, hint: str = "Try again in a moment.") -> ModelError:
        return ModelFailed(f"{self.label} {what}.", hint=hint)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _open_client(self) -> None:
        """Make the SDK's client. It is passed every argument that it would otherwise read from the environment.

        It follows no redirect, which would take the key elsewhere, and uses a proxy from the environment only for
        addresses outside this machine. It sends the SDK's own headers and the account's credentials, and nothing else:
        the SDKs add headers from environment variables (organization, project, custom headers) whatever the address is;
        here the settings alone decide what is sent where.
        """
        import httpx2

        key = self.account.key or "none"  # without one an SDK would look for a key in the environment

        async def set_headers(request: httpx2.Request) -> None:
            for name in set(request.headers):
                if not _SENT_HEADERS.fullmatch(name):
                    del request.headers[name]
            request.headers["Authorization"] = f"Bearer {key}"

        timeout = httpx2.Timeout(self.timeout_s, connect=CONNECT_TIMEOUT_S)
        with self._lock:
            self._client = self._client or getattr(importlib.import_module(self.provider), self.client_class)(
                base_url=self.base_url(),
                api_key=key,
                timeout=timeout,
                max_retries=MAX_RETRIES,
                default_query=self.account.query() or None,
                http_client=httpx2.AsyncClient(
                    follow_redirects=False,
                    trust_env=not self.account.endpoint.is_loopback,
                    timeout=timeout,
                    headers={"accept-encoding": "identity"},
                    event_hooks={"request": [set_headers], "response": [_bounding(self.label)]},
                ),
            )

    async def ask(self, request: ChatRequest) -> RawEvents:
        if self._client is None:  # importing an SDK takes a second or two, and must not block the event loop
            await asyncio.to_thread(self._open_client)
        import httpx2

        client, sdk = self._client, importlib.import_module(self.provider)
        reader = self.reader_class(request, self)
        try:
            create = attrgetter(self.resource)(client).create
            async with await create(**self.body(request), stream=True) as stream:
                async for piece in stream:
                    yield reader.read(piece)
            for event in reader.finish():
                yield event
        except (sdk.APIConnectionError, httpx2.HTTPError, httpx2.StreamError) as exc:
            hint = "the network is up, and model.base_url" if self.account.is_home else "it is running"
            raise self.failed("cannot be reached, or the connection broke", hint=f"Check that {hint}.") from exc
        except sdk.APIError as exc:
            kind, message = error_fields(exc.body)
            status = getattr(exc, "status_code", None)
            # 200: the error came inside the stream
            raise self.explain(None if status == 200 else status, kind, message or exc.message) from exc
        except (sdk.APIError.__base__, ValueError, LookupError, AttributeError, TypeError) as exc:  # the SDK's own base
            raise self.failed("answered in a way that cannot be understood") from exc

    @abstractmethod
    def base_url(self) -> str:
        """Return the address as the SDK wants it."""

    @abstractmethod
    def body(self, request: ChatRequest) -> dict[str, Any]:
        """Return the arguments of the SDK for a request."""

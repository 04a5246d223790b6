"""HTTP calls to one endpoint, with retries: JSON and files.

An endpoint that is down is left alone for a minute. Replies that are not the answer are read here too: errors,
redirects, requests to wait.
"""

from __future__ import annotations

import io
import json
import logging
import math
import random
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import IO, TYPE_CHECKING, Any

from kept.base.clock import Backoff
from kept.base.limits import clip, printable_line
from kept.base.net.endpoint import MAX_DETAIL_CHARS, parse_endpoint, request_headers, secrets_in
from kept.base.redact import Redactor
from kept.base.remote_errors import BadAnswer, EndpointDown, Overloaded, QuotaExhausted, RemoteError, RequestRefused
from kept.base.values import frozen
from kept.errors import ConfigError

if TYPE_CHECKING:
    import httpx

MAX_ANSWER_BYTES = 64_000_000
_MAX_ERROR_BYTES = 64_000
_CONNECT_S = 10.0

# timeouts and retries

_DOWN_HINT = "Check that the service is running and that the network is up."
LONGEST_RETRY_AFTER_S = 60.0
OPEN_S = 60.0
"""How long an endpoint that is down is left alone."""


@frozen
class Timeouts:
    """Limits of one call: an attempt from first to last byte, and all attempts with the pauses between them."""

    attempt_s: float
    total_s: float


QUERY_TIMEOUTS = Timeouts(60.0, 60.0)
"""For queries, for which a user waits: an attempt that used up the time is not repeated."""
DOCUMENT_TIMEOUTS = Timeouts(120.0, 480.0)


@frozen
class RetryPolicy:
    """Number of attempts and their delays, with the clock and the random source. Tests hand in their own clock."""

    attempts: int = 3
    first_delay_s: float = 0.5
    longest_delay_s: float = 8.0
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random.random


Down = dict[str, tuple[float, str]]
"""Endpoints that are down: until when they are left alone, and why. Calls to them fail at once, so that one outage
costs one wait, not one per search."""
DOWN: Down = {}
"""Those that all memories of a process share."""


@frozen
class HttpRequest:
    method: str
    target: bytes
    headers: Mapping[str, str]
    content: bytes | None = None
    sink: IO[bytes] | None = None
    """File that receives the body of an answer too long to be held in memory."""
    max_bytes: int | None = None
    """Maximum length of the answer, if it is not the usual one."""


@frozen
class HttpReply:
    status: int
    headers: Mapping[str, str]
    body: bytes


# replies that are not the answer: errors, redirects, requests to wait

CONTEXT_OVERFLOW = re.compile(
    r"prompt (?:is )?too long|context.{0,3}(?:length|window|size|limit)|maximum (?:context|model length)"
    r"|too long to fit|request_too_large|max_tokens must be at least 1, got -|input token count|inputs?`? tokens \+"
    r"|reduce the length of|tokens must be reduced|too large for model",
    re.IGNORECASE,
)
"""Wordings of Anthropic, OpenAI, Ollama, llama.cpp, vLLM and others for "longer than the model's context"."""

_TOO_LARGE = re.compile(
    CONTEXT_OVERFLOW.pattern
    + r"|max_tokens_per_request|too many tokens|token limit|tokens? per (?:request|batch)|max.{0,30}tokens|exceeds the"
    r"|tokens.{0,30}exceed|too (?:large|long)|request size|batch size",
    re.IGNORECASE,
)
"""Adds the limits of a batch of texts. Only for embeddings: a chat model also complains about `max_tokens`."""

_BAD_KEY = re.compile(r"api.?key.{0,20}(not valid|invalid|expired|not found)|API_KEY_INVALID", re.IGNORECASE)
_RETRY_INFO = re.compile(rb'"retryDelay"\s*:\s*"([0-9.]+)s"')

REDIRECTS = (301, 302, 303, 307, 308)


def is_file_redirect(reply: HttpReply) -> bool:
    """Return whether a reply redirects to an address that a file may be fetched from: HTTPS, or this machine."""
    if reply.status not in REDIRECTS:
        return False
    try:
        endpoint = parse_endpoint(reply.headers.get("location", ""))
    except ConfigError:
        return False
    return endpoint.is_loopback or endpoint.origin.startswith("https:")


def classify_failure(reply: HttpReply, message: str, *, detail: str) -> RemoteError:
    """Return the error that a reply with a failure status means. ``detail`` is the service's message."""
    status = reply.status
    # Gemini answers 429 for its daily quota and for that per minute; only the latter is worth a retry.
    if status == 402 or b"insufficient_quota" in reply.body or (status == 429 and b"PerDay" in reply.body):
        return QuotaExhausted(message, status=status, detail=detail)
    if status == 413 or (status in (400, 422, 500) and _TOO_LARGE.search(detail)):
        return RequestRefused(message, status=413, detail=detail)
    if status in (401, 403) or (status == 400 and _BAD_KEY.search(detail)):
        return RequestRefused(message, status=401, detail=detail)
    if status in (408, 425, 429) or status >= 500:
        return Overloaded(message, hint="Try again later; nothing is lost.")
    return RequestRefused(message, status=status, detail=detail)


def retry_after_s(reply: HttpReply) -> float | None:
    """Return the pause that a service asks for, in seconds, or None."""
    wait = reply.headers.get("retry-after", "").strip()
    retry_info = _RETRY_INFO.search(reply.body)
    if not wait and retry_info:
        wait = retry_info.group(1).decode()
    try:
        return min(max(0.0, float(wait)), LONGEST_RETRY_AFTER_S)
    except ValueError:
        return None


def summarise(reply: HttpReply) -> str:
    """Return the content of a reply in one line: the message of an error, or that it is a web page."""
    from http.client import responses

    text = reply.body.decode("utf-8", "replace").strip()
    try:
        summary = _message_in(json.loads(text))
    except (ValueError, RecursionError):
        summary = "a web page" if text.startswith("<") else text
    return printable_line(summary) or responses.get(reply.status, "no reason given")


def _message_in(tree: Any) -> str:
    """Return the text of an error. Providers use different keys for it."""
    if isinstance(tree, list) and tree:
        return _message_in(tree[0])
    if not isinstance(tree, dict):
        return tree if isinstance(tree, str) else ""
    for name in ("error", "detail", "message", "msg"):
        if tree.get(name):
            return _message_in(tree[name])
    return ""


# calls

log = logging.getLogger(__name__)


class HttpClient:
    """Client of one endpoint. Every call raises RemoteError with a message that may be shown: it holds no secret.

    Failures that may pass are tried again; an endpoint that stays unreachable through all attempts is left alone for a
    minute. Connections are reused between calls. httpx is imported by the first call, so commands without a remote
    provider do not pay for it. Thread-safe.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        secrets: Iterable[str] = (),
        policy: RetryPolicy | None = None,
        down: Down = DOWN,
    ) -> None:
        self.endpoint = parse_endpoint(base_url)
        self._headers = request_headers(headers or {})
        self._redact = Redactor([*secrets, *secrets_in(self.endpoint, self._headers)])
        self.policy = policy or RetryPolicy()
        self._down = down
        self._http: httpx.Client | None = None
        self._lock = threading.Lock()
        self.calls = 0
        self.retries = 0

    def post_json(self, path: str, body: Any, *, timeouts: Timeouts, attempts: int | None = None) -> Any:
        """Return the parsed answer.

        ``attempts`` is 1 for requests that must not be repeated: one whose answer was lost may have been carried out.
        """
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        return self.upload(path, content, content_type="application/json", timeouts=timeouts, attempts=attempts)

    def get_json(self, path: str, *, query: str = "", timeouts: Timeouts) -> Any:
        request = HttpRequest("GET", self.endpoint.target(path, query=query), self._headers)
        return self._parse(self._call(request, timeouts))

    def upload(
        self,
        path: str,
        content: bytes,
        *,
        content_type: str,
        timeouts: Timeouts,
        base: str | None = None,
        headers: Mapping[str, str] | None = None,
        attempts: int | None = None,
    ) -> Any:
        """Send a body of any kind and return the parsed answer."""
        merged = {**self._headers, **(headers or {}), "content-type": content_type}
        request = HttpRequest("POST", self.endpoint.target(path, base=base), merged, content)
        return self._parse(self._call(request, timeouts, attempts))

    def download(
        self,
        path: str,
        sink: IO[bytes],
        *,
        timeouts: Timeouts,
        max_bytes: int,
        query: str = "",
        base: str | None = None,
    ) -> None:
        """Write a file into ``sink``, from its beginning.

        A redirect to a file store elsewhere is followed once, without any of our headers: the key stays at home.
        """
        target = self.endpoint.target(path, query=query, base=base)
        reply = self._call(HttpRequest("GET", target, self._headers, None, sink, max_bytes), timeouts)
        if reply.status in REDIRECTS:
            store = HttpClient(reply.headers["location"], policy=self.policy, down=self._down)
            request = HttpRequest("GET", store.endpoint.target(""), store._headers, None, sink, max_bytes)
            try:
                if store._call(request, timeouts).status in REDIRECTS:
                    raise BadAnswer(f"{store.endpoint.origin} redirects a file download a second time.")
            finally:
                store.close()

    def clean_message(self, text: str) -> str:
        """Return text of the service in a form that may be shown: one short line without secrets."""
        # Redact first: clipping could leave half a key, which is not recognised.
        return clip(self._redact(printable_line(text)), MAX_DETAIL_CHARS)

    def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            http.close()

    # retries

    def _call(self, request: HttpRequest, timeouts: Timeouts, attempts: int | None = None) -> HttpReply:
        """Return a reply with a success status, after as many attempts as the policy and the timeouts allow."""
        policy, origin = self.policy, self.endpoint.origin
        attempts = policy.attempts if attempts is None else attempts
        until_s, reason = self._down.get(origin, (-math.inf, ""))
        if (left_s := until_s - policy.monotonic()) > 0:
            raise EndpointDown(f"{reason} It is not called again for {left_s:.0f} s.", hint=_DOWN_HINT)
        deadline_s = policy.monotonic() + timeouts.total_s
        backoff = Backoff(policy.first_delay_s, policy.longest_delay_s, random=policy.random)
        for attempt in range(1, attempts + 1):
            left_s = deadline_s - policy.monotonic()
            if attempt > 1 and left_s <= 0:
                break  # the pause took longer than asked for
            try:
                return self._attempt(request, min(timeouts.attempt_s, left_s), attempt)
            except RemoteError as exc:
                failure = exc
            delay_s = backoff.next_s() if failure.wait_s is None else failure.wait_s
            if not failure.retryable or attempt == attempts or policy.monotonic() + delay_s >= deadline_s:
                break
            log.info("%s Trying again in %.1f s.", failure.message, delay_s)
            with self._lock:
                self.retries += 1
            policy.sleep(delay_s)
        if isinstance(failure, EndpointDown) and attempts == policy.attempts:
            self._down[origin] = policy.monotonic() + OPEN_S, failure.message
        raise failure

    def _attempt(self, request: HttpRequest, timeout_s: float, attempt: int) -> HttpReply:
        """Return a reply with a success status, or raise the error that it means."""
        import httpx

        with self._lock:
            self.calls += 1
        origin, tries = self.endpoint.origin, f" after {attempt} tries" if attempt > 1 else ""
        try:
            reply = self._send(request, timeout_s)
        except httpx.DecodingError:
            raise BadAnswer(f"{origin} answered with something that cannot be decoded.") from None
        except httpx.LocalProtocolError:
            # The text of this error repeats the header it is about, which may be a key.
            raise BadAnswer(f"{origin} cannot be called with the configured headers.") from None
        except httpx.RequestError as exc:
            raise EndpointDown(f"{origin} {self._explain(exc, timeout_s, tries)}.", hint=_DOWN_HINT) from None
        self._down.pop(origin, None)  # any reply shows that the endpoint is up
        if 200 <= reply.status < 300 or (request.sink and is_file_redirect(reply)):
            return reply
        detail = self.clean_message(summarise(reply))
        message = f"{origin} answered {reply.status}{tries}: {detail.rstrip('.')}."
        failure = classify_failure(reply, message, detail=detail)
        failure.wait_s = retry_after_s(reply)
        raise failure

    # one request

    def _send(self, request: HttpRequest, timeout_s: float) -> HttpReply:
        """Return the reply, whatever its status."""
        import httpx

        http = self._http = self._http or self._open()
        deadline_s = time.monotonic() + timeout_s
        # The path travels apart from the address: httpx logs addresses, and this path may hold a key.
        with http.stream(
            request.method,
            self.endpoint.origin,
            content=request.content,
            headers=request.headers,
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S)),
            extensions={"target": request.target},
        ) as response:
            return HttpReply(response.status_code, response.headers, self._read_body(response, request, deadline_s))

    def _open(self) -> httpx.Client:
        import httpx

        is_plain = self.endpoint.is_loopback and self.endpoint.origin.startswith("http:")
        client = httpx.Client(
            # Reading the certificates takes longer than a call on this machine.
            verify=not is_plain,
            # A proxy from the environment is for the outside world, not for a service on this machine.
            trust_env=not self.endpoint.is_loopback,
            follow_redirects=False,
        )
        weakref.finalize(self, client.close)
        return client

    def _read_body(self, response: httpx.Response, request: HttpRequest, deadline_s: float) -> bytes:
        import httpx

        limit = (request.max_bytes or MAX_ANSWER_BYTES) if response.is_success else _MAX_ERROR_BYTES
        memory = io.BytesIO()
        sink = request.sink if request.sink and response.is_success else memory
        sink.seek(0)
        sink.truncate()  # an earlier attempt may have written a part
        length = 0
        for part in response.iter_bytes():
            # httpx limits the wait for the next byte; a server may send one now and then, for ever.
            if time.monotonic() > deadline_s:
                raise httpx.ReadTimeout("")
            length += len(part)
            if length > limit and response.is_success:
                raise BadAnswer(f"{self.endpoint.origin} answered with more than {limit:,} bytes.")
            sink.write(part)
            if length > limit:
                break
        return memory.getvalue()

    def _explain(self, exc: httpx.RequestError, timeout_s: float, tries: str) -> str:
        import httpx

        if isinstance(exc, httpx.TimeoutException):
            return f"did not answer within {timeout_s:.3g} s{tries}"
        reason = self.clean_message(str(exc) or type(exc).__name__).rstrip(".")
        what = "cannot be reached" if isinstance(exc, httpx.ConnectError) else "closed the connection"
        return f"{what}{tries} ({reason})"

    def _parse(self, reply: HttpReply) -> Any:
        try:
            return json.loads(reply.body)
        except (ValueError, RecursionError) as exc:
            summary = self.clean_message(summarise(reply))
            raise BadAnswer(
                f"{self.endpoint.origin} answered with something that is not JSON: {summary}.",
                hint="Check memory_search.remote.base_url: something else may be answering there.",
            ) from exc

"""HTTP calls with retries: JSON and files, to and from one endpoint."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Mapping
from typing import IO, Any

from kept.errors import BadAnswer, EndpointDown, RemoteError
from kept.limits import clip, printable_line
from kept.net import retry
from kept.net.answers import REDIRECTS, HttpReply, classify_failure, is_file_redirect, retry_after_s, summarise
from kept.net.endpoint import MAX_DETAIL_CHARS, parse_endpoint, request_headers, secrets_in
from kept.net.retry import CircuitBreaker, RetryPolicy, Timeouts
from kept.net.transport import MAX_ANSWER_BYTES, HttpRequest, NoReply, Transport
from kept.redact import Redactor

log = logging.getLogger(__name__)


class HttpClient:
    """Client of one endpoint. Every call raises RemoteError with a message that may be shown: it holds no secret.

    Failures that may pass are tried again; an endpoint that stays unreachable through all attempts trips the circuit
    breaker. Thread-safe.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        secrets: Iterable[str] = (),
        policy: RetryPolicy | None = None,
        breaker: CircuitBreaker | None = None,
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self.endpoint = parse_endpoint(base_url)
        self._headers = request_headers(self.endpoint, headers or {})
        self._redact = Redactor([*secrets, *secrets_in(self.endpoint, self._headers)])
        self.policy = policy or retry.RetryPolicy()
        self._breaker = breaker or retry.BREAKER
        self._max_bytes = max_bytes
        self._transport = Transport(self.endpoint)
        self._lock = threading.Lock()
        self._aborts = 0
        self.calls = 0
        self.retries = 0

    def post_json(self, path: str, body: Any, *, timeouts: Timeouts, attempts: int | None = None) -> Any:
        """Return the parsed answer.

        ``attempts`` is 1 for requests that must not be repeated: one whose answer was lost may have been carried out.
        """
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        request = HttpRequest("POST", self.endpoint.target(path), self._headers, content, max_bytes=self._max_bytes)
        return self._parse(self._call(request, timeouts, attempts))

    def get_json(self, path: str, *, query: str = "", timeouts: Timeouts) -> Any:
        target = self.endpoint.target(path, query=query)
        request = HttpRequest("GET", target, self._get_headers("application/json"), max_bytes=self._max_bytes)
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
    ) -> Any:
        """Send a body that is not JSON and return the parsed answer, which is."""
        merged = {**self._headers, **(headers or {}), "content-type": content_type}
        target = self.endpoint.target(path, base=base)
        request = HttpRequest("POST", target, merged, content, max_bytes=self._max_bytes)
        return self._parse(self._call(request, timeouts))

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
        reply = self._call(HttpRequest("GET", target, self._get_headers("*/*"), None, sink, max_bytes), timeouts)
        if reply.status in REDIRECTS:
            store = HttpClient(reply.headers["location"], policy=self.policy, breaker=self._breaker)
            request = HttpRequest("GET", store.endpoint.target(""), store._get_headers("*/*"), None, sink, max_bytes)
            try:
                if store._call(request, timeouts).status in REDIRECTS:
                    raise BadAnswer(f"{store.endpoint.origin} redirects a file download a second time.")
            finally:
                store.close()

    def clean_message(self, text: str) -> str:
        """Return text of the service in a form that may be shown: one short line without secrets."""
        # Redact first: clipping could leave half a key, which is not recognised.
        return clip(self._redact(printable_line(text)), MAX_DETAIL_CHARS)

    def abort(self) -> None:
        """End the calls of other threads, which would otherwise delay the end of the process."""
        self._aborts += 1
        self._transport.abort()

    def close(self) -> None:
        self._transport.close()

    def _get_headers(self, accept: str) -> dict[str, str]:
        return {**{name: value for name, value in self._headers.items() if name != "content-type"}, "accept": accept}

    # retries

    def _call(self, request: HttpRequest, timeouts: Timeouts, attempts: int | None = None) -> HttpReply:
        """Return a reply with a success status, after as many attempts as the policy and the timeouts allow."""
        policy, origin = self.policy, self.endpoint.origin
        attempts = policy.attempts if attempts is None else attempts
        self._breaker.check(origin, now_s=policy.monotonic())
        deadline_s, aborts = policy.monotonic() + timeouts.total_s, self._aborts
        backoff = policy.backoff()
        for attempt in range(1, attempts + 1):
            left_s = deadline_s - policy.monotonic()
            outcome, wait_s = self._attempt(request, min(timeouts.attempt_s, left_s), attempt)
            if not isinstance(outcome, RemoteError):
                return outcome
            failure, delay_s = outcome, backoff.next_s()
            delay_s = delay_s if wait_s is None else wait_s
            if aborts != self._aborts:
                raise failure
            if not failure.retryable or attempt == attempts or policy.monotonic() + delay_s >= deadline_s:
                break
            log.info("%s Trying again in %.1f s.", failure.message, delay_s)
            self._count(retries=1)
            policy.sleep(delay_s)
        if isinstance(failure, EndpointDown) and attempts == policy.attempts:
            self._breaker.trip(origin, failure.message, now_s=policy.monotonic())
        raise failure

    def _attempt(
        self, request: HttpRequest, timeout_s: float, attempt: int
    ) -> tuple[HttpReply | RemoteError, float | None]:
        """Return the reply or the error it means, and the pause that the service asks for."""
        self._count(calls=1)
        try:
            reply = self._transport.send(request, timeout_s)
        except NoReply as exc:
            return self._down(exc, timeout_s, attempt), None
        except BadAnswer as exc:
            return exc, None
        self._breaker.reset(self.endpoint.origin)  # any reply shows that the endpoint is up
        if 200 <= reply.status < 300 or (request.sink and is_file_redirect(reply)):
            return reply, None
        detail = self.clean_message(summarise(reply))
        message = f"{self.endpoint.origin} answered {reply.status}{_after_attempts(attempt)}: {detail.rstrip('.')}."
        return classify_failure(reply, message, detail=detail), retry_after_s(reply, now=self.policy.now())

    def _count(self, *, calls: int = 0, retries: int = 0) -> None:
        with self._lock:
            self.calls += calls
            self.retries += retries

    def _down(self, exc: NoReply, timeout_s: float, attempt: int) -> EndpointDown:
        origin, attempts = self.endpoint.origin, _after_attempts(attempt)
        reason = self.clean_message(exc.reason).rstrip(".")
        message = {
            "timeout": f"{origin} did not answer within {timeout_s:.3g} s{attempts}.",
            "unreachable": f"{origin} cannot be reached{attempts} ({reason}).",
            "broken": f"{origin} closed the connection{attempts} ({reason}).",
        }[exc.kind]
        error = EndpointDown(message, hint="Check that the service is running and that the network is up.")
        error.__cause__ = exc
        return error

    def _parse(self, reply: HttpReply) -> Any:
        try:
            return json.loads(reply.body)
        except (ValueError, RecursionError) as exc:
            summary = self.clean_message(summarise(reply))
            raise BadAnswer(
                f"{self.endpoint.origin} answered with something that is not JSON: {summary}.",
                hint="Check memory_search.remote.base_url: something else may be answering there.",
            ) from exc


def _after_attempts(attempt: int) -> str:
    return f" after {attempt} tries" if attempt > 1 else ""

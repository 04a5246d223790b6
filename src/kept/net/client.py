"""The client: one call, with its tries."""

from __future__ import annotations

import functools
import json
import logging
import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import IO, TYPE_CHECKING, Any

from kept.errors import BadAnswer, EndpointDown, Overloaded, QuotaExhausted, RemoteError, RequestRefused
from kept.net import timing
from kept.net.answers import (
    BAD_KEY,
    REDIRECTS,
    TOO_LARGE,
    Reply,
    after_tries,
    asked_to_wait_s,
    is_daily_quota,
    leads_elsewhere,
    summary,
)
from kept.net.endpoint import parse_endpoint, request_headers, secrets_in
from kept.net.line import Line, close_lines
from kept.net.text import one_line, shorten
from kept.net.timing import FIRST_DELAY_S, LONGEST_DELAY_S, TRIES, Breaker, Pace, Patience
from kept.redact import Redactor
from kept.values import frozen

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 64_000_000
_MAX_ERROR_BYTES = 64_000
_CONNECT_S = 10.0


@frozen
class _Call:
    method: str
    target: bytes
    headers: Mapping[str, str]
    content: bytes | None = None
    sink: IO[bytes] | None = None
    """Where the body of an answer goes that is too long to be held."""
    max_bytes: int = MAX_ANSWER_BYTES


class HttpClient:
    """Speaks JSON with one endpoint, and brings files there and back.

    Safe to share between threads; each call has a connection to itself.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        secrets: Iterable[str] = (),
        pace: Pace | None = None,
        breaker: Breaker | None = None,
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self.endpoint = parse_endpoint(base_url)
        self._headers = request_headers(self.endpoint, headers or {})
        self._redact = Redactor([*secrets, *secrets_in(self.endpoint, self._headers)])
        self.pace = pace or timing.Pace()
        self._breaker = breaker or timing.BREAKER
        self._max_bytes = max_bytes
        self._idle: list[Line] = []
        self._busy: set[Line] = set()
        self._lock = threading.Lock()
        self._aborts = 0
        self.calls = 0
        self.retries = 0
        weakref.finalize(self, close_lines, self._idle)

    def post_json(self, path: str, body: Any, *, patience: Patience, tries: int = TRIES) -> Any:
        """The answer, parsed. Raises RemoteError, in words that can be shown.

        ``tries`` is 1 for what must not be done twice: a request whose answer was lost may have been heard.
        """
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        call = _Call("POST", self.endpoint.target(path), self._headers, content, max_bytes=self._max_bytes)
        return self._parse(self._reply(call, patience, tries))

    def get_json(self, path: str, *, query: str = "", patience: Patience) -> Any:
        target = self.endpoint.target(path, query=query)
        call = _Call("GET", target, self._without_content("application/json"), max_bytes=self._max_bytes)
        return self._parse(self._reply(call, patience))

    def upload(
        self,
        path: str,
        content: bytes,
        *,
        content_type: str,
        patience: Patience,
        base: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Sends a body that is not JSON; the answer is."""
        sent = {**self._headers, **(headers or {}), "content-type": content_type}
        call = _Call("POST", self.endpoint.target(path, base=base), sent, content, max_bytes=self._max_bytes)
        return self._parse(self._reply(call, patience))

    def download(
        self,
        path: str,
        sink: IO[bytes],
        *,
        patience: Patience,
        max_bytes: int,
        query: str = "",
        base: str | None = None,
    ) -> None:
        """Writes what is there into ``sink``, from its beginning.

        Where the service points to a store of files elsewhere, that is asked without any of our headers: the key
        stays at home.
        """
        target = self.endpoint.target(path, query=query, base=base)
        reply = self._reply(_Call("GET", target, self._without_content("*/*"), None, sink, max_bytes), patience)
        if reply.status in REDIRECTS:
            elsewhere = HttpClient(reply.headers["location"], pace=self.pace, breaker=self._breaker)
            there = elsewhere.endpoint
            call = _Call("GET", there.target(""), elsewhere._without_content("*/*"), None, sink, max_bytes)
            try:
                if elsewhere._reply(call, patience).status in REDIRECTS:
                    raise BadAnswer(f"{there.origin} points to yet another place for a file.")
            finally:
                elsewhere.close()

    def say(self, text: str) -> str:
        """What a service said, fit to be shown: on one line, short, without secrets."""
        return self._say(text)

    def _without_content(self, accept: str) -> dict[str, str]:
        return {**{name: value for name, value in self._headers.items() if name != "content-type"}, "accept": accept}

    def _reply(self, call: _Call, patience: Patience, tries: int = TRIES) -> Reply:
        pace, origin = self.pace, self.endpoint.origin
        self._breaker.check(origin, now_s=pace.monotonic())
        deadline, aborts = pace.monotonic() + patience.total_s, self._aborts
        for attempt in range(1, tries + 1):
            left_s = deadline - pace.monotonic()
            outcome, wait_s = self._attempt(call, min(patience.attempt_s, left_s), attempt)
            if not isinstance(outcome, RemoteError):
                return outcome
            delay_s = self._backoff(attempt) if wait_s is None else wait_s
            failure = outcome
            if aborts != self._aborts:
                raise failure
            if not failure.retryable or attempt == tries or pace.monotonic() + delay_s >= deadline:
                break
            log.info("%s Trying again in %.1f s.", failure.message, delay_s)
            self._count(retries=1)
            pace.sleep(delay_s)
        if isinstance(failure, EndpointDown) and tries == TRIES:
            self._breaker.trip(origin, failure.message, now_s=pace.monotonic())
        raise failure

    def abort(self) -> None:
        """Ends the calls of other threads, which would otherwise hold up the end of the process."""
        self._aborts += 1
        for line in tuple(self._busy):
            line.cut()

    def close(self) -> None:
        close_lines(self._idle)

    def _count(self, *, calls: int = 0, retries: int = 0) -> None:
        with self._lock:
            self.calls += calls
            self.retries += retries

    def _attempt(self, call: _Call, timeout_s: float, attempt: int) -> tuple[Reply | RemoteError, float | None]:
        """The reply or what went wrong, and how long the service asks to wait."""
        self._count(calls=1)
        try:
            reply = self._send(call, timeout_s, attempt)
        except (EndpointDown, BadAnswer) as exc:
            return exc, None
        self._breaker.reset(self.endpoint.origin)  # whatever it says, it is there
        if 200 <= reply.status < 300 or (call.sink and leads_elsewhere(reply)):
            return reply, None
        return self._failure(reply, attempt), asked_to_wait_s(reply, now=self.pace.now())

    def _send(self, call: _Call, timeout_s: float, attempt: int) -> Reply:
        import httpx

        line = self._take_line()
        whole = False
        try:
            line.begin(timeout_s)
            # The path travels apart from the address, because httpx logs addresses and a key may stand in this one.
            with line.client.stream(
                call.method,
                self.endpoint.origin,
                content=call.content,
                headers=dict(call.headers),
                timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S)),
                extensions={"target": call.target, "trace": line.trace},
            ) as response:
                body = self._read_body(response, call)
            whole = True
            return Reply(response.status_code, response.headers, body)
        except httpx.DecodingError as exc:
            raise BadAnswer(f"{self.endpoint.origin} answered with something that cannot be decoded.") from exc
        except httpx.LocalProtocolError:
            # Its text repeats the header that it complains about.
            raise BadAnswer(f"{self.endpoint.origin} cannot be spoken to as configured.") from None
        except httpx.RequestError as exc:
            raise self._unreachable(exc, timeout_s, attempt, was_cut=line.was_cut) from exc
        finally:
            line.end()
            self._busy.discard(line)
            if whole and not line.was_cut:
                self._idle.append(line)
            else:
                line.client.close()

    def _take_line(self) -> Line:
        try:
            line = self._idle.pop()
        except IndexError:
            line = Line(self._new_client())
        self._busy.add(line)
        return line

    def _new_client(self) -> httpx.Client:
        import httpx

        # A proxy from the environment is for the world outside, not for a service on this machine.
        return httpx.Client(
            verify=self._tls,
            trust_env=not self.endpoint.is_loopback,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=1),
        )

    @functools.cached_property
    def _tls(self) -> Any:
        """Shared by all lines, because reading the certificates takes longer than a call on a local network."""
        import httpx

        plain = self.endpoint.is_loopback and self.endpoint.origin.startswith("http:")
        return False if plain else httpx.create_ssl_context()

    def _read_body(self, response: httpx.Response, call: _Call) -> bytes:
        limit = call.max_bytes if response.is_success else _MAX_ERROR_BYTES
        sink = call.sink if response.is_success else None
        if sink is not None:
            sink.seek(0)
            sink.truncate()  # an attempt before this one may have left something
        body, length = bytearray(), 0
        for part in response.iter_bytes():
            length += len(part)
            if length > limit and response.is_success:
                raise BadAnswer(f"{self.endpoint.origin} answered with more than {limit:,} bytes.")
            if sink is not None:
                sink.write(part)
            else:
                body += part
            if length > limit:
                break
        return bytes(body)

    def _unreachable(self, exc: httpx.RequestError, timeout_s: float, attempt: int, *, was_cut: bool) -> EndpointDown:
        import httpx

        origin, tries = self.endpoint.origin, after_tries(attempt)
        reason = self._say(str(exc) or type(exc).__name__)
        if was_cut or isinstance(exc, httpx.TimeoutException):
            message = f"{origin} did not answer within {timeout_s:.3g} s{tries}."
        elif isinstance(exc, httpx.ConnectError):
            message = f"{origin} cannot be reached{tries} ({reason.rstrip('.')})."
        else:
            message = f"{origin} broke off the connection{tries} ({reason.rstrip('.')})."
        return EndpointDown(message, hint="Check that the service is running and that the network is up.")

    def _failure(self, reply: Reply, attempt: int) -> RemoteError:
        detail = self._say(summary(reply))
        message = f"{self.endpoint.origin} answered {reply.status}{after_tries(attempt)}: {detail.rstrip('.')}."
        if reply.status == 402 or b"insufficient_quota" in reply.body or is_daily_quota(reply):
            return QuotaExhausted(message, status=reply.status, detail=detail)
        if reply.status in (400, 413, 422, 500) and (reply.status == 413 or TOO_LARGE.search(detail)):
            return RequestRefused(message, status=413, detail=detail)
        if reply.status in (401, 403) or (reply.status == 400 and BAD_KEY.search(detail)):
            return RequestRefused(message, status=401, detail=detail)
        if reply.status in (408, 425, 429) or reply.status >= 500:
            return Overloaded(message, hint="Try again later; nothing is lost.")
        return RequestRefused(message, status=reply.status, detail=detail)

    def _parse(self, reply: Reply) -> Any:
        try:
            return json.loads(reply.body)
        except (ValueError, RecursionError) as exc:
            said = self._say(summary(reply))
            raise BadAnswer(
                f"{self.endpoint.origin} answered with something that is not JSON: {said}.",
                hint="Check memory_search.remote.base_url: something else may be answering there.",
            ) from exc

    def _say(self, text: str) -> str:
        """Redacted before it is shortened: half a key is still a key."""
        return shorten(self._redact(one_line(text)))

    def _backoff(self, attempt: int) -> float:
        """Twice as long each time, and never the same for two who were turned away together."""
        whole: float = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** (attempt - 1))
        return whole * (0.5 + 0.5 * self.pace.random())

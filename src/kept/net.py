"""Calls to services over HTTP: patient with what passes, quick to give up on what does not, silent about secrets.

An attempt is limited twice. The read timeout ends a connection on which nothing comes; a timer ends one on which a
byte comes now and then, for ever. An endpoint that stays unreachable through all tries is left alone for a minute, so
that it costs one wait and not one for every search.

httpx is imported by the first call: nobody else pays for it.
"""

from __future__ import annotations

import base64
import functools
import json
import logging
import random
import re
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from kept.errors import BadAnswer, ConfigError, EndpointDown, Overloaded, QuotaExhausted, RemoteError, RequestRefused
from kept.values import frozen

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)

TRIES = 3
FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 8.0
LONGEST_RETRY_AFTER_S = 60.0
REST_S = 60.0
MAX_ANSWER_BYTES = 64_000_000
_MAX_ERROR_BYTES = 64_000
_CONNECT_S = 10.0
_LONGEST_DETAIL = 200


@frozen
class Patience:
    """How long one attempt may take from first to last byte, and how long all of them with the pauses between."""

    attempt_s: float
    total_s: float


QUERY = Patience(60.0, 60.0)
"""Somebody waits for the answer to a query: an attempt that used up the time is not followed by another."""
DOCUMENTS = Patience(120.0, 480.0)


@frozen
class Pace:
    """Time and chance, as something that can be handed in."""

    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    random: Callable[[], float] = random.random


class Breaker:
    """Remembers which endpoints are down, so that they are not waited for again and again."""

    def __init__(self, rest_s: float = REST_S) -> None:
        self._rest_s = rest_s
        self._down: dict[str, tuple[float, str]] = {}

    def check(self, endpoint: str, *, now_s: float) -> None:
        until, why = self._down.get(endpoint, (now_s, ""))
        if now_s < until:
            raise EndpointDown(
                f"{why} It is not asked again for {until - now_s:.0f} s.",
                hint="Check that the service is running and that the network is up.",
            )

    def trip(self, endpoint: str, why: str, *, now_s: float) -> None:
        self._down[endpoint] = (now_s + self._rest_s, why)

    def reset(self, endpoint: str) -> None:
        self._down.pop(endpoint, None)


BREAKER = Breaker()
"""The one of this process."""


class Redactor:
    """Takes secrets out of what is about to be said: those it was told of, and whatever looks like a key."""

    _KEYS = re.compile(r"\b(?:sk|pa|pk|rk)-[\w*-]{6,}|\bAIza[\w-]{10,}|(?i:bearer|basic) [\w.~+/=-]{6,}")

    def __init__(self, secrets: Iterable[str]) -> None:
        # The longest first: a part of a secret that is itself one must not leave the rest of the whole behind.
        self._secrets = sorted({secret for secret in secrets if len(secret) >= 4}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "(secret)")
        return self._KEYS.sub("(secret)", text)


@frozen
class Endpoint:
    """A base address taken apart, so that what may be secret in it never stands where addresses are shown."""

    origin: str
    """Scheme, host and port: all that is ever said about it."""
    path: str
    query: str
    userinfo: str
    is_loopback: bool

    @property
    def public_url(self) -> str:
        return self.origin + self.path

    def target(self, path: str, *, query: str = "", base: str | None = None) -> bytes:
        """``base`` takes the place of the address's own path."""
        start = quote(self.path if base is None else base, safe="/%:@!$&()*+,;=~")
        whole = "&".join(part for part in (query, self.query) if part)
        return f"{start}{path}{'?' + whole if whole else ''}".encode()


def parse_endpoint(base_url: str, *, setting: str = "memory_search.remote.base_url") -> Endpoint:
    try:
        parts = urlsplit(base_url.strip())
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        host, port = "", None
    if not host or parts.scheme not in ("http", "https") or re.search(r"[\s\x00-\x1f]", host):
        # The address itself is not repeated: there may be a key in it.
        raise ConfigError(f"{setting}: not an address.", hint="It looks like https://host/v1 or http://host:1234/v1.")
    shown = f"[{host}]" if ":" in host else host
    default = {"http": 80, "https": 443}[parts.scheme]
    return Endpoint(
        origin=f"{parts.scheme}://{shown}" + (f":{port}" if port and port != default else ""),
        path=parts.path.rstrip("/"),
        query=quote(parts.query, safe="/%:@!$&()*+,;=~?"),
        userinfo=parts.netloc.rpartition("@")[0],
        is_loopback=host in ("localhost", "::1") or host.startswith("127."),
    )


@frozen
class _Call:
    method: str
    target: bytes
    headers: Mapping[str, str]
    content: bytes | None = None
    sink: IO[bytes] | None = None
    """Where the body of an answer goes that is too long to be held."""
    max_bytes: int = MAX_ANSWER_BYTES


@frozen
class _Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes


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
        self._headers = _request_headers(self.endpoint, headers or {})
        self._redact = Redactor([*secrets, *_secrets_in(self.endpoint, self._headers)])
        self.pace = pace or Pace()
        self._breaker = breaker or BREAKER
        self._max_bytes = max_bytes
        self._idle: list[_Line] = []
        self._busy: set[_Line] = set()
        self._lock = threading.Lock()
        self._aborts = 0
        self.calls = 0
        self.retries = 0
        weakref.finalize(self, _close_lines, self._idle)

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
        if reply.status in _REDIRECTS:
            elsewhere = HttpClient(reply.headers["location"], pace=self.pace, breaker=self._breaker)
            there = elsewhere.endpoint
            call = _Call("GET", there.target(""), elsewhere._without_content("*/*"), None, sink, max_bytes)
            try:
                if elsewhere._reply(call, patience).status in _REDIRECTS:
                    raise BadAnswer(f"{there.origin} points to yet another place for a file.")
            finally:
                elsewhere.close()

    def say(self, text: str) -> str:
        """What a service said, fit to be shown: on one line, short, without secrets."""
        return self._say(text)

    def _without_content(self, accept: str) -> dict[str, str]:
        return {**{name: value for name, value in self._headers.items() if name != "content-type"}, "accept": accept}

    def _reply(self, call: _Call, patience: Patience, tries: int = TRIES) -> _Reply:
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
        _close_lines(self._idle)

    def _count(self, *, calls: int = 0, retries: int = 0) -> None:
        with self._lock:
            self.calls += calls
            self.retries += retries

    def _attempt(self, call: _Call, timeout_s: float, attempt: int) -> tuple[_Reply | RemoteError, float | None]:
        """The reply or what went wrong, and how long the service asks to wait."""
        self._count(calls=1)
        try:
            reply = self._send(call, timeout_s, attempt)
        except (EndpointDown, BadAnswer) as exc:
            return exc, None
        self._breaker.reset(self.endpoint.origin)  # whatever it says, it is there
        if 200 <= reply.status < 300 or (call.sink and _leads_elsewhere(reply)):
            return reply, None
        return self._failure(reply, attempt), _asked_to_wait_s(reply, now=self.pace.now())

    def _send(self, call: _Call, timeout_s: float, attempt: int) -> _Reply:
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
            return _Reply(response.status_code, response.headers, body)
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

    def _take_line(self) -> _Line:
        try:
            line = self._idle.pop()
        except IndexError:
            line = _Line(self._new_client())
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

        origin, tries = self.endpoint.origin, _after(attempt)
        reason = self._say(str(exc) or type(exc).__name__)
        if was_cut or isinstance(exc, httpx.TimeoutException):
            message = f"{origin} did not answer within {timeout_s:.3g} s{tries}."
        elif isinstance(exc, httpx.ConnectError):
            message = f"{origin} cannot be reached{tries} ({reason.rstrip('.')})."
        else:
            message = f"{origin} broke off the connection{tries} ({reason.rstrip('.')})."
        return EndpointDown(message, hint="Check that the service is running and that the network is up.")

    def _failure(self, reply: _Reply, attempt: int) -> RemoteError:
        detail = self._say(_summary(reply))
        message = f"{self.endpoint.origin} answered {reply.status}{_after(attempt)}: {detail.rstrip('.')}."
        if reply.status == 402 or b"insufficient_quota" in reply.body or _is_daily_quota(reply):
            return QuotaExhausted(message, status=reply.status, detail=detail)
        if reply.status in (400, 413, 422, 500) and (reply.status == 413 or _TOO_LARGE.search(detail)):
            return RequestRefused(message, status=413, detail=detail)
        if reply.status in (401, 403) or (reply.status == 400 and _BAD_KEY.search(detail)):
            return RequestRefused(message, status=401, detail=detail)
        if reply.status in (408, 425, 429) or reply.status >= 500:
            return Overloaded(message, hint="Try again later; nothing is lost.")
        return RequestRefused(message, status=reply.status, detail=detail)

    def _parse(self, reply: _Reply) -> Any:
        try:
            return json.loads(reply.body)
        except (ValueError, RecursionError) as exc:
            said = self._say(_summary(reply))
            raise BadAnswer(
                f"{self.endpoint.origin} answered with something that is not JSON: {said}.",
                hint="Check memory_search.remote.base_url: something else may be answering there.",
            ) from exc

    def _say(self, text: str) -> str:
        """Redacted before it is shortened: half a key is still a key."""
        return _shorten(self._redact(_one_line(text)))

    def _backoff(self, attempt: int) -> float:
        """Twice as long each time, and never the same for two who were turned away together."""
        whole: float = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** (attempt - 1))
        return whole * (0.5 + 0.5 * self.pace.random())


class _Line:
    """A connection that one call at a time uses, and that another thread can cut."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.was_cut = False
        self._lock = threading.Lock()
        self._stream: Any = None
        self._timer: threading.Timer | None = None

    def begin(self, timeout_s: float) -> None:
        with self._lock:
            self._timer = threading.Timer(timeout_s, self.cut)
            self._timer.daemon = True
            self._timer.start()

    def end(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self._lock:
                self._stream = info["return_value"]
                if self.was_cut:
                    self._shut()

    def cut(self) -> None:
        """A thread that waits for bytes is not woken by closing its socket, but it is by shutting it down."""
        with self._lock:
            if self._timer is not None:
                self.was_cut = True
                self._shut()

    def _shut(self) -> None:
        connected = self._stream.get_extra_info("socket") if self._stream is not None else None
        if connected is not None:
            try:
                socket.socket.shutdown(connected, socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed already


def _close_lines(lines: list[_Line]) -> None:
    while lines:
        lines.pop().client.close()


# what is sent

_AUTH_WORDS = re.compile(r"auth|key|token|secret|cookie|password|credential|signature", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def is_auth_header(name: str) -> bool:
    return _AUTH_WORDS.search(name) is not None


def fits_header(value: str) -> bool:
    return value.isascii() and value.isprintable()


def _request_headers(endpoint: Endpoint, given: Mapping[str, str]) -> dict[str, str]:
    headers = {"accept": "application/json", "content-type": "application/json", "user-agent": "kept"}
    if endpoint.userinfo:
        headers["authorization"] = "Basic " + base64.b64encode(unquote(endpoint.userinfo).encode()).decode()
    for name, value in given.items():
        if not _HEADER_NAME.fullmatch(name) or not fits_header(value):
            raise ConfigError(
                f"memory_search.remote.headers: '{_shorten(_one_line(name))}' cannot be sent as a header.",
                hint="Names have no spaces; values are plain text on one line.",
            )
        headers[name.lower()] = value
    return headers


def _secrets_in(endpoint: Endpoint, headers: Mapping[str, str]) -> Iterable[str]:
    for name, value in headers.items():
        if is_auth_header(name):
            yield value
            yield value.rpartition(" ")[2]
    yield from (unquote(part) for part in (endpoint.userinfo, *endpoint.userinfo.split(":")))
    yield endpoint.query
    for _, value in parse_qsl(endpoint.query):
        yield value


# what is answered

_TOO_LARGE = re.compile(
    r"context.{0,3}(length|size|window)|max_tokens_per_request|too many tokens|token limit|tokens? per (request|batch)"
    r"|max.{0,30}tokens|exceeds the|tokens.{0,30}exceed|too (large|long)|request size|batch size",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(r"api.?key.{0,20}(not valid|invalid|expired|not found)|API_KEY_INVALID", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_RETRY_INFO = re.compile(rb'"retryDelay"\s*:\s*"([0-9.]+)s"')


_REDIRECTS = (301, 302, 303, 307, 308)


def _leads_elsewhere(reply: _Reply) -> bool:
    if reply.status not in _REDIRECTS:
        return False
    try:
        place = parse_endpoint(reply.headers.get("location", ""))
    except ConfigError:
        return False
    return place.is_loopback or place.origin.startswith("https:")


def _is_daily_quota(reply: _Reply) -> bool:
    """Gemini answers 429 to both: the minute's quota comes back in a minute, the day's does not."""
    return reply.status == 429 and b"PerDay" in reply.body


def _asked_to_wait_s(reply: _Reply, *, now: float) -> float | None:
    given = reply.headers.get("retry-after", "").strip()
    found = _RETRY_INFO.search(reply.body)
    if not given and found:
        given = found.group(1).decode()
    try:
        wait_s = float(given)
    except ValueError:
        try:
            wait_s = parsedate_to_datetime(given).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(0.0, wait_s), LONGEST_RETRY_AFTER_S) if wait_s == wait_s else None


def _summary(reply: _Reply) -> str:
    """What an answer says, in one short line: the message of an error, the title of a web page."""
    text = reply.body.decode("utf-8", "replace").strip()
    try:
        said = _message_in(json.loads(text))
    except (ValueError, RecursionError):
        said = text
        if text.startswith("<") or "<html" in text[:1000].lower():
            title = _TITLE.search(text)
            said = f"a web page, '{_one_line(title.group(1))}'" if title else "a web page"
    return _one_line(said) or _phrase(reply.status)


def _message_in(tree: Any) -> str:
    """The services agree on a name for the text of an error as little as on anything else."""
    if isinstance(tree, list) and tree:
        return _message_in(tree[0])
    if not isinstance(tree, dict):
        return tree if isinstance(tree, str) else ""
    for name in ("error", "detail", "message", "msg"):
        if tree.get(name):
            return _message_in(tree[name])
    return ""


def _one_line(text: str) -> str:
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def _shorten(line: str) -> str:
    return line if len(line) <= _LONGEST_DETAIL else line[:_LONGEST_DETAIL].rstrip() + "…"


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"


def _after(attempt: int) -> str:
    return f" after {attempt} tries" if attempt > 1 else ""

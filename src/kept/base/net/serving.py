"""Runs our own HTTP servers: who may call them, and within which limits.

A page in a browser can send requests to loopback, and by DNS rebinding under its own host name. So the Host header
must name a host that we serve, and so must the Origin header if the browser sends one. A token is required
if one is set.

A connection costs a file handle before any token is checked. So connections are counted and timed: a request has to
arrive in time, and if all connections are taken, the oldest one without a whole request or a token is
dropped for a new one.
"""

from __future__ import annotations

import ipaddress
import json
import math
import resource
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from kept.base.grants import Grant
from kept.base.net.endpoint import LOOPBACK_HOSTS
from kept.base.values import frozen
from kept.errors import KeptError

if TYPE_CHECKING:
    import uvicorn

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def error_body(code: str, message: str, hint: str = "") -> dict[str, Any]:
    """Return an error as every path answers it. ``type`` and ``param`` are for libraries of OpenAI's format."""
    return {"error": {"code": code, "message": message, "hint": hint, "type": code, "param": None}}


GRANT = "kept.grant"
"""Name in the scope of a request for what its token allows. It is absent if no token is needed."""
ROUTE = "kept.route"
"""Name in the scope of a request for the pattern of its path, such as /note/{path:path}. The path itself may say what
is in a note."""
_ONCE = (b"host", b"origin", b"authorization", b"cookie", b"content-length", b"transfer-encoding")
"""Headers that decide something. If one came twice, a proxy in front might have read the other."""


class TokenGate(Protocol):
    """Tokens that let a request in, and how often each may be used."""

    @property
    def is_required(self) -> bool:
        """True if nobody is served without a token."""
        ...

    def find(self, sent: bytes) -> Grant | None: ...

    def find_by_id(self, token_id: str) -> Grant | None: ...

    def explain_refusal(self, sent: bytes) -> str:
        """Return why this lets nobody in, and what to do."""
        ...

    def wait_s(self, grant: Grant) -> float:
        """Count a request. Return how long its sender has to wait, or 0 if it may go on."""
        ...


class Guard:
    """ASGI application that checks requests before it passes them on to another."""

    def __init__(self, app: App, *, hosts: Iterable[str], gate: TokenGate | None = None) -> None:
        """Without a gate, no token is asked for."""
        self.app = app
        self.hosts = frozenset((*LOOPBACK_HOSTS, *(host.lower() for host in hosts)))
        self.gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refusal = self._find_refusal(scope)
        if refusal is None:
            await self.app(scope, receive, send)
        else:
            await refuse(send, *refusal)

    def _find_refusal(self, scope: Scope) -> tuple[int, str, str, float] | None:
        """Return the status, the code and the message of a refusal, and when to try again; None if there is none."""
        headers = headers_of(scope)
        names = [name.lower() for name, _ in scope["headers"]]
        has_two_lengths = {b"content-length", b"transfer-encoding"} <= headers.keys()
        if has_two_lengths or any(names.count(name) > 1 for name in _ONCE):
            return 400, "header_repeated", "A header that may come once came twice.", 0.0
        host = headers.get(b"host", "").strip().lower()
        # Without its port. An IPv6 address keeps its brackets.
        host = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
        if host not in self.hosts:
            return 421, "host_refused", "This server does not answer to that Host.", 0.0
        origin = headers.get(b"origin")
        if origin is not None and _origin_host(origin) not in self.hosts:
            return 403, "origin_refused", "Requests from that Origin are not accepted.", 0.0
        if self.gate is None or not self.gate.is_required:
            return None
        grant = self.gate.find(bearer_token(headers))
        if grant is None:
            return 401, "token_missing", self.gate.explain_refusal(bearer_token(headers)), 0.0
        scope[GRANT] = grant
        if wait_s := self.gate.wait_s(grant):
            return 429, "rate_limited", f"The token '{grant.name}' is used too often. Try later.", wait_s
        return None


def headers_of(scope: Scope) -> dict[bytes, str]:
    return {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}


def bearer_token(headers: Mapping[bytes, str]) -> bytes:
    """Return the token that a request sends, or nothing."""
    scheme, _, sent = headers.get(b"authorization", "").partition(" ")
    return sent.strip().encode("latin-1") if scheme.lower() == "bearer" else b""


def _origin_host(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:  # such as half of an IPv6 address
        return ""


async def refuse(send: Send, status: int, code: str, message: str, wait_s: float = 0.0) -> None:
    """Send a refusal as JSON. ``wait_s`` is when to try again."""
    body = json.dumps(error_body(code, message)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if wait_s > 0:
        headers.append((b"retry-after", str(math.ceil(wait_s)).encode()))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# limits

_RESERVED_FILES = 64
"""File handles that the rest of the process needs: databases, transcripts, connections to models."""
_MIN_CONNECTIONS = 8
_ACCEPTED_AT_ONCE = 16
"""asyncio accepts this many connections before the first of them can be refused."""


@frozen
class ServerLimits:
    connections: int = 256
    """Maximum number of connections; less if the process may not open that many files."""
    head_s: float = 10.0
    """Timeout from connecting, or the last answer, to the end of a request's headers."""
    body_s: float = 60.0
    head_bytes: int = 32_768

    def room(self) -> int:
        """Return the number of connections to accept, below the number of files that this process may open."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files == resource.RLIM_INFINITY:
            return self.connections
        return min(self.connections, max(_MIN_CONNECTIONS, files - _RESERVED_FILES - _ACCEPTED_AT_ONCE))


def listen(host: str, port: int, *, error: type[KeptError], hint: str) -> socket.socket:
    """Return a bound socket. Clients that connect before the server is up wait for it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sets TCP_NODELAY. Otherwise every answer waits 40 ms for an acknowledgement.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host.strip("[]"), port))
        bound.listen()
    except (OSError, TypeError) as exc:  # TypeError: a name that no host can have
        bound.close()
        reason = getattr(exc, "strerror", None) or exc
        raise error(f"{host}:{port} cannot be listened on ({reason}).", hint=hint) from exc
    return bound


def make_server(app: App, limits: ServerLimits, *, closing_s: float) -> uvicorn.Server:
    """Return a server for an ASGI application. It handles no signals."""
    import uvicorn

    from kept.base.net.limited_protocol import limited_protocol

    class Server(uvicorn.Server):
        def capture_signals(self) -> Any:
            return nullcontext()

    config = uvicorn.Config(
        app,
        http=limited_protocol(limits),
        loop="asyncio",
        ws="none",
        lifespan="off",
        backlog=_ACCEPTED_AT_ONCE,
        h11_max_incomplete_event_size=limits.head_bytes,
        timeout_graceful_shutdown=math.ceil(closing_s),
        log_config=None,
        log_level="error",  # malformed requests of strangers must not fill the log
        access_log=False,
        proxy_headers=False,
    )
    return Server(config)


_MAX_KEYS = 10_000
_IPV6_PREFIX = 64
"""A host has this many bits of an IPv6 address to itself, and could use all of them."""


class RateLimiter:
    """Buckets by key. Only for the thread of the event loop."""

    def __init__(self, rate_per_s: float, burst: int, *, now_s: Callable[[], float] = time.monotonic) -> None:
        """``rate_per_s`` of 0 switches the limit off. ``burst`` is the size of a bucket."""
        self.rate_per_s = rate_per_s
        self.burst = max(1, burst)
        self._now_s = now_s
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What is left in each bucket, and when that was. The key that was used last is at the end."""

    def take(self, key: str) -> float:
        """Take one request from a bucket. Return how long to wait, or 0 if the bucket was not empty."""
        if not self.rate_per_s:
            return 0.0
        now_s = self._now_s()
        left, since_s = self._buckets.pop(key, (float(self.burst), now_s))
        left = min(float(self.burst), left + (now_s - since_s) * self.rate_per_s)
        is_allowed = left >= 1.0
        self._buckets[key] = (left - 1.0 if is_allowed else left, now_s)
        while len(self._buckets) > _MAX_KEYS:
            self._buckets.popitem(last=False)
        return 0.0 if is_allowed else (1.0 - left) / self.rate_per_s


class ClientAddresses:
    """Finds the address that a request came from, also behind proxies that are trusted to say so."""

    def __init__(self, trusted_proxies: Iterable[str]) -> None:
        """Raise ValueError if one of them is neither an address nor a network."""
        self._trusted = tuple(ipaddress.ip_network(text, strict=False) for text in trusted_proxies)

    def key_of(self, peer: str, headers: Mapping[bytes, str]) -> str:
        """Return the address, or its network for IPv6. Each proxy adds its client at the end of X-Forwarded-For, so
        the last entry that no trusted proxy made up is the client."""
        client = _parse_address(peer)
        for hop in reversed(headers.get(b"x-forwarded-for", "").split(",")):
            is_trusted = client is not None and any(client in network for network in self._trusted)
            before = _parse_address(hop.strip()) if is_trusted else None
            if before is None:
                break
            client = before
        if isinstance(client, ipaddress.IPv6Address):
            if client.ipv4_mapped:
                return str(client.ipv4_mapped)
            return str(ipaddress.ip_network((client, _IPV6_PREFIX), strict=False))
        return str(client or peer)


def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None

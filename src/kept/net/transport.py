"""Sends one request and reads its reply, within limits of time and size. `client` retries and reads error replies."""

from __future__ import annotations

import functools
import socket
import threading
import weakref
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any, Literal

from kept.net.endpoint import Endpoint
from kept.remote_errors import BadAnswer
from kept.values import frozen

if TYPE_CHECKING:
    import httpx

MAX_ANSWER_BYTES = 64_000_000
_MAX_ERROR_BYTES = 64_000
_CONNECT_S = 10.0


@frozen
class HttpRequest:
    method: str
    target: bytes
    headers: Mapping[str, str]
    content: bytes | None = None
    sink: IO[bytes] | None = None
    """File that receives the body of an answer too long to be held in memory."""
    max_bytes: int = MAX_ANSWER_BYTES


@frozen
class HttpReply:
    status: int
    headers: Mapping[str, str]
    body: bytes


class NoReply(Exception):
    """Failure of a connection before a whole reply had arrived."""

    def __init__(self, kind: Literal["timeout", "unreachable", "broken"], reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


class AbortableConnection:
    """A connection that one call at a time uses, and that another thread can abort."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.was_aborted = False
        self._lock = threading.Lock()
        self._stream: Any = None
        self._timer: threading.Timer | None = None

    def start(self, timeout_s: float) -> None:
        """Begin a call that is aborted after ``timeout_s``.

        httpx limits the wait for the next byte; the timer limits a server that sends one byte now and then, for ever.
        """
        with self._lock:
            self._timer = threading.Timer(timeout_s, self.abort)
            self._timer.daemon = True
            self._timer.start()

    def finish(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Remember the network stream. httpx calls this at every step of a request."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self._lock:
                self._stream = info["return_value"]
                if self.was_aborted:
                    self._shut_down()

    def abort(self) -> None:
        """End the call in progress, if there is one."""
        with self._lock:
            if self._timer is not None:
                self.was_aborted = True
                self._shut_down()

    def _shut_down(self) -> None:
        """Wake the thread that waits for bytes. Closing its socket would not wake it; shutting it down does."""
        connected = self._stream.get_extra_info("socket") if self._stream is not None else None
        if connected is not None:
            try:
                socket.socket.shutdown(connected, socket.SHUT_RDWR)
            except OSError:
                pass  # closed already


def close_connections(connections: list[AbortableConnection]) -> None:
    while connections:
        connections.pop().client.close()


class Transport:
    """Connections to one endpoint, reused between calls. Thread-safe: each call has a connection to itself.

    httpx is imported by the first call, so commands without a remote provider do not pay for it.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._idle: list[AbortableConnection] = []
        self._busy: set[AbortableConnection] = set()
        weakref.finalize(self, close_connections, self._idle)

    def send(self, request: HttpRequest, timeout_s: float) -> HttpReply:
        """Return the reply, whatever its status. Raise NoReply, or BadAnswer for a reply that cannot be read."""
        import httpx

        connection = self._acquire()
        is_reusable = False
        try:
            connection.start(timeout_s)
            # The path travels apart from the address: httpx logs addresses, and this path may hold a key.
            with connection.client.stream(
                request.method,
                self._endpoint.origin,
                content=request.content,
                headers=request.headers,
                timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S)),
                extensions={"target": request.target, "trace": connection.trace},
            ) as response:
                body = self._read_body(response, request)
            is_reusable = True
            return HttpReply(response.status_code, response.headers, body)
        except httpx.DecodingError as exc:
            raise BadAnswer(f"{self._endpoint.origin} answered with something that cannot be decoded.") from exc
        except httpx.LocalProtocolError:
            # The text of this error repeats the header it is about, which may be a key.
            raise BadAnswer(f"{self._endpoint.origin} cannot be called with the configured headers.") from None
        except httpx.RequestError as exc:
            raise _no_reply(exc, was_aborted=connection.was_aborted) from exc
        finally:
            self._release(connection, is_reusable=is_reusable)

    def abort(self) -> None:
        """End the calls of other threads."""
        for connection in tuple(self._busy):
            connection.abort()

    def close(self) -> None:
        close_connections(self._idle)

    def _acquire(self) -> AbortableConnection:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = AbortableConnection(self._new_client())
        self._busy.add(connection)
        return connection

    def _release(self, connection: AbortableConnection, *, is_reusable: bool) -> None:
        connection.finish()
        self._busy.discard(connection)
        if is_reusable and not connection.was_aborted:
            self._idle.append(connection)
        else:
            connection.client.close()

    def _new_client(self) -> httpx.Client:
        import httpx

        return httpx.Client(
            verify=self._tls,
            # A proxy from the environment is for the outside world, not for a service on this machine.
            trust_env=not self._endpoint.is_loopback,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=1),
        )

    @functools.cached_property
    def _tls(self) -> Any:
        """TLS context of all connections: reading the certificates takes longer than a call on a local network."""
        import httpx

        is_plain = self._endpoint.is_loopback and self._endpoint.origin.startswith("http:")
        return False if is_plain else httpx.create_ssl_context()

    def _read_body(self, response: httpx.Response, request: HttpRequest) -> bytes:
        limit = request.max_bytes if response.is_success else _MAX_ERROR_BYTES
        sink = request.sink if response.is_success else None
        body, length = bytearray(), 0
        if sink is not None:
            sink.seek(0)
            sink.truncate()  # an earlier attempt may have written a part
        for part in response.iter_bytes():
            length += len(part)
            if length > limit and response.is_success:
                raise BadAnswer(f"{self._endpoint.origin} answered with more than {limit:,} bytes.")
            if sink is not None:
                sink.write(part)
            else:
                body += part
            if length > limit:
                break
        return bytes(body)


def _no_reply(exc: httpx.RequestError, *, was_aborted: bool) -> NoReply:
    import httpx

    reason = str(exc) or type(exc).__name__
    if was_aborted or isinstance(exc, httpx.TimeoutException):
        return NoReply("timeout", reason)
    return NoReply("unreachable" if isinstance(exc, httpx.ConnectError) else "broken", reason)


def encode_form(fields: Mapping[str, str], files: Mapping[str, tuple[str, bytes, str]]) -> tuple[bytes, str]:
    """Return the body of a multipart form and its content type. A file is its name, content and type."""
    import httpx

    request = httpx.Request("POST", "http://form.invalid", data=fields, files=files)
    return request.read(), request.headers["content-type"]

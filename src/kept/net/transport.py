"""Sends one request and reads its reply, within limits of time and size. `client` retries and reads error replies."""

from __future__ import annotations

import io
import time
import weakref
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Literal

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
    max_bytes: int | None = None
    """Maximum length of the answer, if it is not the usual one."""


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


class Transport:
    """Connections to one endpoint, reused between calls. Thread-safe.

    httpx is imported by the first call, so commands without a remote provider do not pay for it.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._client: httpx.Client | None = None

    def send(self, request: HttpRequest, timeout_s: float) -> HttpReply:
        """Return the reply, whatever its status. Raise NoReply, or BadAnswer for a reply that cannot be read."""
        import httpx

        client = self._client = self._client or self._open()
        deadline_s = time.monotonic() + timeout_s
        try:
            # The path travels apart from the address: httpx logs addresses, and this path may hold a key.
            with client.stream(
                request.method,
                self._endpoint.origin,
                content=request.content,
                headers=request.headers,
                timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S)),
                extensions={"target": request.target},
            ) as response:
                return HttpReply(response.status_code, response.headers, self._read_body(response, request, deadline_s))
        except httpx.DecodingError as exc:
            raise BadAnswer(f"{self._endpoint.origin} answered with something that cannot be decoded.") from exc
        except httpx.LocalProtocolError:
            # The text of this error repeats the header it is about, which may be a key.
            raise BadAnswer(f"{self._endpoint.origin} cannot be called with the configured headers.") from None
        except httpx.RequestError as exc:
            raise _no_reply(exc) from exc

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _open(self) -> httpx.Client:
        import httpx

        is_plain = self._endpoint.is_loopback and self._endpoint.origin.startswith("http:")
        client = httpx.Client(
            # Reading the certificates takes longer than a call on this machine.
            verify=not is_plain,
            # A proxy from the environment is for the outside world, not for a service on this machine.
            trust_env=not self._endpoint.is_loopback,
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
                raise BadAnswer(f"{self._endpoint.origin} answered with more than {limit:,} bytes.")
            sink.write(part)
            if length > limit:
                break
        return memory.getvalue()


def _no_reply(exc: httpx.RequestError) -> NoReply:
    import httpx

    reason = str(exc) or type(exc).__name__
    if isinstance(exc, httpx.TimeoutException):
        return NoReply("timeout", reason)
    return NoReply("unreachable" if isinstance(exc, httpx.ConnectError) else "broken", reason)


def encode_form(fields: Mapping[str, str], files: Mapping[str, tuple[str, bytes, str]]) -> tuple[bytes, str]:
    """Return the body of a multipart form and its content type. A file is its name, content and type."""
    import httpx

    request = httpx.Request("POST", "http://form.invalid", data=fields, files=files)
    return request.read(), request.headers["content-type"]

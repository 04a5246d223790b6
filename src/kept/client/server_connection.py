"""Calls of the HTTP API, and the login: the URL and the token of a server, which the home of this machine keeps."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kept.base.json_values import from_tree, read_value, to_tree
from kept.base.limits import printable_line, read_object
from kept.base.values import frozen
from kept.config.layers import LOGIN
from kept.errors import KeptError, LoginRefused, ServerUnreachable, UsageError

if TYPE_CHECKING:
    import httpx
    from httpx import Response

    from kept.storage.contract import Storage

T = TypeVar("T")

API = "/v1/memory/"
_JSON = {"Content-Type": "application/json"}
_CONNECT_S = 5.0
_TIMEOUT_S = 60.0
_TRY_LATER = "Check the address and the network."


@frozen
class Login:
    url: str
    """Without a path, such as https://memory.example.org."""
    token: str
    agent: str = "main"
    """Agent of the server whose memory the token is for."""
    person: str | None = None
    """Person that the token is for, if it is for one."""

    @classmethod
    def of(cls, url: str, token: str) -> Login:
        """Return a login. Raise UsageError for a URL or a token that cannot be one."""
        from kept.base.net.endpoint import fits_header, parse_endpoint

        endpoint = parse_endpoint(url if "://" in url else f"https://{url}", setting="the URL of the server")
        if not token or not fits_header(token):
            raise UsageError("That is not a token.", hint="'kept token create' on the server prints one.")
        if endpoint.origin.startswith("http:") and not endpoint.is_loopback:
            hint = "Use https://, with a proxy with TLS in front of the server."
            raise UsageError("The token would cross the network in clear.", hint=hint)
        return cls(endpoint.origin, token)


@frozen
class TokenRights:
    """What a token may do, as the server says."""

    agent: str
    name: str
    scopes: tuple[str, ...]
    person: str | None = None


def read_login(home: Storage) -> Login:
    try:
        return from_tree(Login, read_object(home.documents.read(LOGIN).data))
    except ValueError as exc:
        raise UsageError(f"{LOGIN} cannot be read.", hint="Log in again: kept login URL") from exc


def write_login(home: Storage, login: Login | None) -> None:
    """Store a login, readable by its owner only; or remove it."""
    from kept.storage.contract import Erase, Write

    if login is not None:
        home.commit([Write(LOGIN, json.dumps(to_tree(login)).encode() + b"\n", erase=True)])
    elif home.documents.find(LOGIN):
        home.commit([Erase(LOGIN)])


class ServerConnection:
    """Calls of one server. A failure is raised as the error that the server had. Safe to share between threads."""

    def __init__(self, login: Login, *, timeout_s: float = _TIMEOUT_S) -> None:
        self.login = login
        self._timeout_s = timeout_s
        self._http: httpx.Client | None = None
        self._lock = threading.Lock()

    def call(self, operation: str, result: type[T], /, **arguments: Any) -> T:
        """Return what an operation returns. Arguments that are None are left out."""
        sent = {name: value for name, value in arguments.items() if value is not None}
        tree = self.post(API + operation, sent)
        try:
            return cast("T", tree["result"] if result is object else read_value(result, tree["result"]))
        except (ValueError, KeyError, TypeError) as exc:
            hint = "It may have another version: compare 'kept --version' there and here."
            raise ServerUnreachable(f"{self.login.url} answered {operation} in another form.", hint=hint) from exc

    def post(self, path: str, body: Any) -> Any:
        """Send an object, and return the one that is the answer."""
        with self.stream(path, _dump(body), _JSON) as answer:
            tree = _parse(answer.read())
        if tree is None:
            raise _error_of(self.login.url, answer.status_code, tree)
        return tree

    def events(self, path: str, body: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """Send an object, and yield the events of the answer, each with its name, as they come."""
        name = ""
        with self.stream(path, _dump(body), {**_JSON, "Accept": "text/event-stream"}) as answer:
            for line in answer.iter_lines():
                if line.startswith("event:"):
                    name = line.removeprefix("event:").strip()
                elif line.startswith("data:") and (tree := _parse(line.removeprefix("data:").encode())) is not None:
                    yield name, tree

    @contextmanager
    def stream(self, path: str, content: bytes | Iterable[bytes], headers: Mapping[str, str]) -> Iterator[Response]:
        """Send a request, and give the answer, whose body is still to come. Raise the error that it is instead."""
        import httpx

        with self._lock:
            http = self._http = self._http or self._open()
        try:
            with http.stream("POST", path, content=content, headers=headers) as answer:
                if not answer.is_success:
                    raise _error_of(self.login.url, answer.status_code, _parse(answer.read()))
                yield answer
        except httpx.HTTPError as exc:
            reason = printable_line(str(exc)).rstrip(".") or type(exc).__name__
            raise ServerUnreachable(f"{self.login.url} cannot be reached ({reason}).", hint=_TRY_LATER) from exc

    def _open(self) -> httpx.Client:
        import httpx

        timeout = httpx.Timeout(self._timeout_s, connect=_CONNECT_S)
        is_plain = self.login.url.startswith("http:")  # on this machine: neither certificates nor proxies
        headers = {"Authorization": f"Bearer {self.login.token}"}
        return httpx.Client(
            base_url=self.login.url, headers=headers, timeout=timeout, verify=not is_plain, trust_env=not is_plain
        )

    def close(self) -> None:
        with self._lock:
            http, self._http = self._http, None
        if http is not None:
            http.close()


def _dump(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def _parse(body: bytes) -> Any:
    """Return the object in a body, or None."""
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return tree if isinstance(tree, dict) else None


def _error_of(url: str, status: int, tree: Any) -> KeptError:
    """Return the error that an answer describes, of its own class if there is one."""
    error = tree.get("error") if isinstance(tree, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("code"), str):
        return ServerUnreachable(f"{url} answered with the status {status}: something else may be listening there.")
    message, hint = (printable_line(str(error.get(name) or "")) for name in ("message", "hint"))
    if status == 401:
        return LoginRefused(f"{url} does not accept the token.", hint=f"{message} Log in again: kept login {url}")
    kind = next((kind for kind in _kinds(KeptError) if kind.code == error["code"]), None)
    if kind is None and (status >= 500 or status == 429):
        return ServerUnreachable(f"{url}: {message}", hint=hint)
    return (kind or UsageError)(message, hint=hint)


def _kinds(kind: type[KeptError]) -> Iterator[type[KeptError]]:
    yield kind
    for inner in kind.__subclasses__():
        yield from _kinds(inner)

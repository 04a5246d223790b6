"""Addresses and headers of a service, with their secrets kept apart."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from kept.errors import ConfigError
from kept.limits import clip, printable_line
from kept.net.loopback import is_loopback
from kept.values import frozen

MAX_DETAIL_CHARS = 200
"""Maximum length of a service's text in our messages."""

_AUTH_WORDS = re.compile(r"auth|key|token|secret|cookie|password|credential|signature", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@frozen
class Endpoint:
    """The parts of a base address. Those that may be secret are kept apart, and never shown."""

    origin: str
    """Scheme, host and port: the only part that is shown."""
    path: str
    query: str
    userinfo: str
    is_loopback: bool

    @property
    def public_url(self) -> str:
        return self.origin + self.path

    def target(self, path: str, *, query: str = "", base: str | None = None) -> bytes:
        """Return path and query of a request. ``base`` replaces the path of the address."""
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
        # The message leaves out the address: it may contain a key.
        raise ConfigError(f"{setting}: not an address.", hint="It looks like https://host/v1 or http://host:1234/v1.")
    shown = f"[{host}]" if ":" in host else host
    default = {"http": 80, "https": 443}[parts.scheme]
    return Endpoint(
        origin=f"{parts.scheme}://{shown}" + (f":{port}" if port and port != default else ""),
        path=parts.path.rstrip("/"),
        query=quote(parts.query, safe="/%:@!$&()*+,;=~?"),
        userinfo=parts.netloc.rpartition("@")[0],
        is_loopback=is_loopback(host),
    )


def is_auth_header(name: str) -> bool:
    return _AUTH_WORDS.search(name) is not None


def fits_header(value: str) -> bool:
    return value.isascii() and value.isprintable()


def request_headers(endpoint: Endpoint, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of every request: defaults, the credentials in the address, and ``extra``."""
    headers = {"accept": "application/json", "content-type": "application/json", "user-agent": "kept"}
    if endpoint.userinfo:
        headers["authorization"] = "Basic " + base64.b64encode(unquote(endpoint.userinfo).encode()).decode()
    for name, value in extra.items():
        if not _HEADER_NAME.fullmatch(name) or not fits_header(value):
            shown = clip(printable_line(name), MAX_DETAIL_CHARS)
            raise ConfigError(
                f"memory_search.remote.headers: '{shown}' cannot be sent as a header.",
                hint="Names have no spaces; values are plain text on one line.",
            )
        headers[name.lower()] = value
    return headers


def secrets_in(endpoint: Endpoint, headers: Mapping[str, str]) -> Iterable[str]:
    """Yield the values that messages must not contain: credentials in headers, and in the address."""
    for name, value in headers.items():
        if is_auth_header(name):
            yield value
            yield value.rpartition(" ")[2]
    yield from (unquote(part) for part in (endpoint.userinfo, *endpoint.userinfo.split(":")))
    yield endpoint.query
    for _, value in parse_qsl(endpoint.query):
        yield value

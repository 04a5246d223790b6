"""Addresses and headers, and keeping what is secret in them apart."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from kept.errors import ConfigError
from kept.net.loopback import is_loopback
from kept.text import clip, printable_line
from kept.values import frozen

MAX_DETAIL_CHARS = 200
"""Length at which text of a service is cut in a message of ours."""

_AUTH_WORDS = re.compile(r"auth|key|token|secret|cookie|password|credential|signature", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


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
        is_loopback=is_loopback(host),
    )


def is_auth_header(name: str) -> bool:
    return _AUTH_WORDS.search(name) is not None


def fits_header(value: str) -> bool:
    return value.isascii() and value.isprintable()


def request_headers(endpoint: Endpoint, given: Mapping[str, str]) -> dict[str, str]:
    headers = {"accept": "application/json", "content-type": "application/json", "user-agent": "kept"}
    if endpoint.userinfo:
        headers["authorization"] = "Basic " + base64.b64encode(unquote(endpoint.userinfo).encode()).decode()
    for name, value in given.items():
        if not _HEADER_NAME.fullmatch(name) or not fits_header(value):
            shown = clip(printable_line(name), MAX_DETAIL_CHARS)
            raise ConfigError(
                f"memory_search.remote.headers: '{shown}' cannot be sent as a header.",
                hint="Names have no spaces; values are plain text on one line.",
            )
        headers[name.lower()] = value
    return headers


def secrets_in(endpoint: Endpoint, headers: Mapping[str, str]) -> Iterable[str]:
    for name, value in headers.items():
        if is_auth_header(name):
            yield value
            yield value.rpartition(" ")[2]
    yield from (unquote(part) for part in (endpoint.userinfo, *endpoint.userinfo.split(":")))
    yield endpoint.query
    for _, value in parse_qsl(endpoint.query):
        yield value

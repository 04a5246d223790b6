"""Addresses, headers and credentials of a service, with their secrets kept apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from urllib.parse import parse_qsl, quote, urlsplit

from kept.base.limits import clip, printable_line
from kept.base.redact import Redactor
from kept.base.values import frozen
from kept.errors import ConfigError

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]", "::1")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine. DNS decides on other names, even "127.example.com", so they are not."""
    if host in LOOPBACK_HOSTS:
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


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
    # The messages leave out the address: it may contain a key.
    if not host or parts.scheme not in ("http", "https") or re.search(r"[\s\x00-\x1f]", host):
        raise ConfigError(f"{setting}: not an address.", hint="It looks like https://host/v1 or http://host:1234/v1.")
    if "@" in parts.netloc:
        raise ConfigError(f"{setting}: a name and a password do not belong into an address.", hint="Set headers.")
    shown = f"[{host}]" if ":" in host else host
    default = {"http": 80, "https": 443}[parts.scheme]
    return Endpoint(
        origin=f"{parts.scheme}://{shown}" + (f":{port}" if port and port != default else ""),
        path=parts.path.rstrip("/"),
        query=quote(parts.query, safe="/%:@!$&()*+,;=~?"),
        is_loopback=is_loopback(host),
    )


def is_auth_header(name: str) -> bool:
    return _AUTH_WORDS.search(name) is not None


def fits_header(value: str) -> bool:
    return value.isascii() and value.isprintable()


def request_headers(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of every request: defaults and ``extra``."""
    headers = {"accept": "application/json, */*", "user-agent": "kept"}
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
    """Yield the values that messages must not contain: credentials in headers, and the query of the address."""
    for name, value in headers.items():
        if is_auth_header(name):
            yield value
            yield value.rpartition(" ")[2]
    yield endpoint.query
    for _, value in parse_qsl(endpoint.query):
        yield value


@frozen
class ProviderAccount:
    """Address of a provider, with the key and the headers for it."""

    base_url: str = field(repr=False)
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_home: bool = False
    """True if this is the provider's own address, and not a compatible server."""

    @property
    def key(self) -> str | None:
        """Key without the white space that copying it may have added, or None."""
        return (self.api_key or "").strip() or None

    @property
    def endpoint(self) -> Endpoint:
        return parse_endpoint(self.base_url)

    @property
    def has_credentials(self) -> bool:
        return self.key is not None or any(map(is_auth_header, self.headers))

    @property
    def has_valid_key(self) -> bool:
        """Return whether the key, if there is one, can be sent as a header."""
        return self.key is None or fits_header(self.key)

    def query(self) -> dict[str, object]:
        """Return the parameters that are part of the address."""
        return dict(parse_qsl(self.endpoint.query))

    def clean_message(self, text: str) -> str:
        """Return text of the provider in a form that may be shown: one short line without secrets."""
        redact = Redactor([self.key or "", *secrets_in(self.endpoint, self.headers)])
        return clip(redact(printable_line(text)), MAX_DETAIL_CHARS)


def choose_account(
    home_url: str,
    *,
    base_url: str | None,
    api_key: str | None,
    environment_key: str | None,
    headers: Mapping[str, str] | None = None,
    setting: str = "memory_search.remote.base_url",
) -> ProviderAccount:
    """Return the account for a configured address, or for the provider's own.

    A key from the environment belongs to the provider's own endpoint and is sent nowhere else. Another endpoint gets
    the key that the configuration names for it, or none: many need none.
    """
    endpoint = parse_endpoint(base_url or home_url, setting=setting)
    is_home = endpoint.origin == parse_endpoint(home_url).origin
    return ProviderAccount(
        base_url or home_url, api_key or (environment_key if is_home else None), headers or {}, is_home
    )

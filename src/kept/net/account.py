"""A provider's endpoint, and the credentials that may be sent there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from urllib.parse import parse_qsl

from kept.limits import clip, printable_line
from kept.net.endpoint import (
    MAX_DETAIL_CHARS,
    Endpoint,
    fits_header,
    is_auth_header,
    parse_endpoint,
    request_headers,
    secrets_in,
)
from kept.redact import Redactor
from kept.values import frozen


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

    def basic_auth(self) -> dict[str, str]:
        """Return the header for a user and password that are part of the address."""
        header = request_headers(self.endpoint, {}).get("authorization")
        return {"Authorization": header} if header else {}

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

"""Every key, token and password in the settings and the environment. No message may contain them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qsl, unquote, urlsplit

from kept.config.keys import KEY_VARIABLES
from kept.config.layers import settings_of
from kept.config.schema import Config

_SECRET_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASSWORD")


def secrets_of(config: Config) -> Iterator[str]:
    for part in (config.agent, config.gateway):
        for name, value, is_secret in settings_of(part):
            if is_secret and value:
                yield from value.values() if isinstance(value, dict) else (str(value),)
            if name.endswith(("_url", ".url")) and value:
                yield from _secrets_in_url(str(value))
    for provider in KEY_VARIABLES:
        yield config.keys.find(provider) or ""
    yield from (value for name, value in config.keys.claude.items() if _SECRET_VARIABLE.search(name))


def _secrets_in_url(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    yield unquote(parts.netloc.rpartition("@")[0].rpartition(":")[2])
    yield from (value for _, value in parse_qsl(parts.query))

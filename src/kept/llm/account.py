"""Where a provider is, with what key, and what its failures mean to whoever uses Kept."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any
from urllib.parse import parse_qsl, unquote

from kept.config import KEY_VARIABLES, ProviderKeys
from kept.config.schema import Model
from kept.errors import ContextOverflow, ModelError, ModelFailed, ModelRefused, ModelUnavailable
from kept.net import Endpoint, fits_header, parse_endpoint
from kept.net.text import one_line, shorten
from kept.redact import Redactor
from kept.values import frozen

OVERFLOW = re.compile(
    r"prompt (?:is )?too long|context[ _](?:length|window|size|limit)|maximum (?:context|model length)|too long to fit"
    r"|request_too_large|max_tokens must be at least 1, got -|input token count|inputs?`? tokens \+"
    r"|reduce the length of|tokens must be reduced|too large for model",
    re.IGNORECASE,
)
"""How Anthropic, OpenAI, Ollama, llama.cpp, vLLM and others say that a request is longer than the model takes."""
_NO_CREDIT = re.compile(r"insufficient_quota|billing|credit balance|exceeded your current quota", re.IGNORECASE)
_PASSING = (408, 409, 425, 429)
_PASSING_TYPES = re.compile(r"overloaded|api_error|rate_limit|timeout|server_error|unavailable", re.IGNORECASE)


@frozen
class Account:
    provider: str
    label: str
    """What it is called where people read it."""
    name: str
    """The model's."""
    endpoint: Endpoint
    is_home: bool
    """Whether this is the provider's own address, and not a compatible one."""
    key: str | None = field(default=None, repr=False)

    def headers(self) -> dict[str, str]:
        """Credentials that stand in the address itself."""
        if not self.endpoint.userinfo:
            return {}
        return {"Authorization": "Basic " + base64.b64encode(unquote(self.endpoint.userinfo).encode()).decode()}

    def query(self) -> dict[str, object]:
        return dict(parse_qsl(self.endpoint.query))

    def say(self, text: str) -> str:
        """Words of the provider, on one line and without the key."""
        hide = Redactor([self.key or "", *self.endpoint.userinfo.split(":"), *map(str, self.query().values())])
        return shorten(one_line(hide(text)))

    def key_hint(self) -> str:
        own = f"{' or '.join(KEY_VARIABLES[self.provider])}, or " if self.is_home else ""
        return f"Set {own}agents.defaults.model.api_key in config.yaml."

    def explain(self, status: int | None, kind: str, message: str) -> ModelError:
        """What an error means. ``kind`` is the provider's type or code; one without a status came inside a stream."""
        said = self.say(message)
        if OVERFLOW.search(f"{kind} {message}") or status == 413:
            return ContextOverflow(f"{self.label}: the request is longer than the model takes ({said}).")
        if status in (401, 403) or kind in ("authentication_error", "permission_error"):
            return ModelUnavailable(f"{self.label} does not accept the key ({said}).", hint=self.key_hint())
        if status == 402 or _NO_CREDIT.search(f"{kind} {message}"):
            return ModelUnavailable(f"{self.label}: the account is used up ({said}).", hint="Check its billing.")
        if status == 404:
            return ModelUnavailable(
                f"{self.label} does not know the model '{self.name}' ({said}).",
                hint="Check model.name and model.base_url.",
            )
        if status is None or status in _PASSING or status >= 500 or _PASSING_TYPES.search(kind):
            return ModelFailed(f"{self.label} cannot answer at the moment ({said}).", hint="Try again in a moment.")
        return ModelRefused(f"{self.label} does not accept the request ({said}).", hint="Check model.name.")

    def unreachable(self) -> ModelError:
        return ModelFailed(
            f"{self.label} cannot be reached, or the connection broke.",
            hint="Check that the network is up, and model.base_url." if self.is_home else "Check that it is running.",
        )

    def garbled(self) -> ModelError:
        return ModelFailed(f"{self.label} answered in a way that cannot be understood.", hint="Try again in a moment.")

    def broke_off(self) -> ModelError:
        return ModelFailed(f"{self.label} broke off before the end of its answer.", hint="Try again in a moment.")


@frozen
class Home:
    """What is known of a provider beforehand."""

    provider: str
    label: str
    url: str
    model: str
    """Unless another is named."""


ANTHROPIC = Home("anthropic", "Anthropic", "https://api.anthropic.com", "claude-sonnet-5-5")
OPENAI = Home("openai", "OpenAI", "https://api.openai.com/v1", "gpt-5.4-mini")


def find_account(home: Home, settings: Model, keys: ProviderKeys) -> Account:
    """The key of the environment goes to the provider it belongs to, and nowhere else."""
    endpoint = parse_endpoint(settings.base_url or home.url, setting="model.base_url")
    is_home = endpoint.origin == parse_endpoint(home.url).origin
    key = (settings.api_key or (keys.find(home.provider) if is_home else None) or "").strip() or None
    label = home.label if is_home else f"The model at {endpoint.origin}"
    name = settings.name or (home.model if is_home else "")
    if not name:
        raise ModelUnavailable(f"{label} needs a model's name.", hint="Set agents.defaults.model.name in config.yaml.")
    account = Account(home.provider, label, name, endpoint, is_home, key)
    if is_home and not key:
        raise ModelUnavailable(f"There is no API key for {label}.", hint=account.key_hint())
    if key and not fits_header(key):
        raise ModelUnavailable(f"The API key for {label} has characters that no key has.", hint=account.key_hint())
    return account


def error_fields(body: Any) -> tuple[str, str]:
    """Type or code, and message, of an error as any of these servers writes it; empty where there are none."""
    inner = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(inner, Mapping):
        return "", str(inner or "")
    kind = " ".join(str(inner[name]) for name in ("type", "code") if inner.get(name))
    return kind, str(inner.get("message") or "")

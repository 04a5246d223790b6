"""Chat models of remote providers: their account, and the meaning of their errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kept.config import KEY_VARIABLES, ProviderKeys
from kept.config.schema import ModelSettings
from kept.errors import ContextOverflow, ModelError, ModelFailed, ModelRefused, ModelUnavailable
from kept.net import ProviderAccount, choose_account
from kept.net.answers import CONTEXT_OVERFLOW
from kept.values import frozen

_NO_CREDIT = re.compile(r"insufficient_quota|billing|credit balance|exceeded your current quota", re.IGNORECASE)
_PASSING = (408, 409, 425, 429)
_PASSING_TYPES = re.compile(r"overloaded|api_error|rate_limit|timeout|server_error|unavailable", re.IGNORECASE)


@frozen
class ModelService:
    """A chat model of a provider, and the meaning of its errors."""

    provider: str
    label: str
    """Name of the provider in messages."""
    name: str
    """Name of the model."""
    account: ProviderAccount

    def key_hint(self) -> str:
        variables = f"{' or '.join(KEY_VARIABLES[self.provider])}, or " if self.account.is_home else ""
        return f"Set {variables}agents.defaults.model.api_key in config.yaml."

    def explain(self, status: int | None, kind: str, message: str) -> ModelError:
        """Return the error that a reply means.

        ``kind`` is the provider's type or code. An error without a status arrived inside a stream.
        """
        detail = self.account.clean_message(message)
        if CONTEXT_OVERFLOW.search(f"{kind} {message}") or status == 413:
            return ContextOverflow(f"{self.label}: the request is longer than the model takes ({detail}).")
        if status in (401, 403) or kind in ("authentication_error", "permission_error"):
            return ModelUnavailable(f"{self.label} does not accept the key ({detail}).", hint=self.key_hint())
        if status == 402 or _NO_CREDIT.search(f"{kind} {message}"):
            return ModelUnavailable(f"{self.label}: the account is used up ({detail}).", hint="Check its billing.")
        if status == 404:
            return ModelUnavailable(
                f"{self.label} does not know the model '{self.name}' ({detail}).",
                hint="Check model.name and model.base_url.",
            )
        if status is None or status in _PASSING or status >= 500 or _PASSING_TYPES.search(kind):
            return ModelFailed(f"{self.label} cannot answer at the moment ({detail}).", hint="Try again in a moment.")
        return ModelRefused(f"{self.label} does not accept the request ({detail}).", hint="Check model.name.")

    def unreachable(self) -> ModelError:
        return ModelFailed(
            f"{self.label} cannot be reached, or the connection broke.",
            hint="Check that the network is up, and model.base_url."
            if self.account.is_home
            else "Check that it is running.",
        )

    def garbled(self) -> ModelError:
        return ModelFailed(f"{self.label} answered in a way that cannot be understood.", hint="Try again in a moment.")

    def broke_off(self) -> ModelError:
        return ModelFailed(f"{self.label} broke off before the end of its answer.", hint="Try again in a moment.")


@frozen
class Home:
    """A provider's own address and default model."""

    provider: str
    label: str
    url: str
    model: str
    """Used unless the settings name another."""


ANTHROPIC = Home("anthropic", "Anthropic", "https://api.anthropic.com", "claude-sonnet-5-5")
OPENAI = Home("openai", "OpenAI", "https://api.openai.com/v1", "gpt-5.4-mini")


def get_service(home: Home, settings: ModelSettings, keys: ProviderKeys) -> ModelService:
    """Return the configured model of a provider. Raise ModelUnavailable if its name or its key is missing."""
    account = choose_account(
        home.url,
        base_url=settings.base_url,
        api_key=settings.api_key,
        environment_key=keys.find(home.provider),
        setting="model.base_url",
    )
    label = home.label if account.is_home else f"The model at {account.endpoint.origin}"
    name = settings.name or (home.model if account.is_home else "")
    if not name:
        raise ModelUnavailable(f"{label} needs a model's name.", hint="Set agents.defaults.model.name in config.yaml.")
    service = ModelService(home.provider, label, name, account)
    if account.is_home and not account.key:
        raise ModelUnavailable(f"There is no API key for {label}.", hint=service.key_hint())
    if not account.has_valid_key:
        raise ModelUnavailable(f"The API key for {label} has characters that no key has.", hint=service.key_hint())
    return service


def error_fields(body: Any) -> tuple[str, str]:
    """Return the type or code of an error, and its message. Servers nest them differently; a missing one is empty."""
    inner = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(inner, Mapping):
        return "", str(inner or "")
    kind = " ".join(str(inner[name]) for name in ("type", "code") if inner.get(name))
    return kind, str(inner.get("message") or "")

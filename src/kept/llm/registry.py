"""Open the chat model that the settings name."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, assert_never

from kept.config import ProviderKeys
from kept.config.schema import ModelSettings
from kept.llm.base import DOCUMENTS, PICTURES, ChatModel
from kept.llm.streaming import SdkChat, get_service
from kept.remote_errors import ModelUnavailable

if TYPE_CHECKING:
    from kept.llm.claude_cli import KeptServer


def make_model(settings: ModelSettings, keys: ProviderKeys, *, kept_server: KeptServer | None = None) -> ChatModel:
    """Return the configured model. Nothing is sent yet, and SDKs are imported by the first request.

    ``kept`` starts Kept's MCP server on the same memory, for a model that runs tools itself.
    """
    match settings.provider:
        case None:
            raise ModelUnavailable(
                "No model is set up.",
                hint="Set agents.defaults.model.provider in config.yaml, or KEPT_MODEL__PROVIDER, to claude_cli, "
                "anthropic or openai (Ollama and others with model.base_url), or to extractive, which needs no model.",
            )
        case "anthropic":
            from kept.llm.anthropic import AnthropicChat

            return _make_sdk(AnthropicChat, settings, keys)
        case "openai":
            from kept.llm.openai import OpenAIChat

            return _make_sdk(OpenAIChat, settings, keys)
        case "claude_cli":
            from kept.llm.claude_cli import ClaudeCli

            return ClaudeCli.from_settings(settings, keys, kept_server=kept_server)
        case "extractive":
            from kept.llm.extractive import ExtractiveChat

            return ExtractiveChat(context_window=settings.context_window)
        case _:
            assert_never(settings.provider)


def _make_sdk(kind: type[SdkChat], settings: ModelSettings, keys: ProviderKeys) -> ChatModel:
    service = get_service(kind, settings, keys)
    if importlib.util.find_spec(kind.provider) is None:
        raise ModelUnavailable(
            f"The library for {kind.label} is not installed.", hint=f"pip install 'kept[{kind.provider}]'"
        )
    return kind(
        service,
        context_window=settings.context_window,
        timeout_s=settings.timeout_s,
        max_output_tokens=settings.max_output_tokens,
        media=_media(settings, is_home=service.account.is_home),
    )


def _media(settings: ModelSettings, *, is_home: bool) -> frozenset[str]:
    """Return the types of files that are sent to a model: by default only to the providers' own servers, because many
    compatible ones refuse a request with a picture."""
    kinds = {"image": PICTURES, "pdf": DOCUMENTS}
    chosen = settings.media if settings.media is not None else (("image", "pdf") if is_home else ())
    return frozenset().union(*(kinds[kind] for kind in chosen))

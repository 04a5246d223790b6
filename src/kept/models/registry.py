"""Open the chat model that the settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from kept.base.remote_errors import ModelUnavailable
from kept.config.agent_config import ProviderKeys
from kept.config.schema import ModelSettings
from kept.models.base import ChatModel

if TYPE_CHECKING:
    from kept.models.claude_cli import KeptServer


def make_model(settings: ModelSettings, keys: ProviderKeys, *, kept_server: KeptServer | None = None) -> ChatModel:
    """Return the configured model. Nothing is sent yet, and SDKs are imported by the first request.

    ``kept_server`` starts Kept's MCP server on the same memory, for a model that runs tools itself.
    """
    match settings.provider:
        case None:
            raise ModelUnavailable(
                "No model is set up.",
                hint="Set agents.defaults.model.provider in config.yaml, or KEPT_MODEL__PROVIDER, to claude_cli, "
                "anthropic or openai (Ollama and others with model.base_url), or to extractive, which needs no model.",
            )
        case "anthropic":
            from kept.models.anthropic import AnthropicChat

            return AnthropicChat(settings, keys)
        case "openai":
            from kept.models.openai import OpenAIChat

            return OpenAIChat(settings, keys)
        case "claude_cli":
            from kept.models.claude_cli import ClaudeCli

            return ClaudeCli(settings, keys, kept_server=kept_server)
        case "extractive":
            from kept.models.extractive import ExtractiveChat

            return ExtractiveChat(context_window=settings.context_window)
        case _:
            assert_never(settings.provider)

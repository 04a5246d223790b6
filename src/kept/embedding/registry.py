"""The table of embedding providers. A provider's code is imported when it is chosen, not before."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.base.remote_errors import EmbeddingError
from kept.base.values import frozen
from kept.config.agent_config import Config
from kept.config.schema import MemorySearchSettings, RemoteSettings
from kept.embedding.base import Embedder

if TYPE_CHECKING:
    from kept.base.net import RetryPolicy
    from kept.embedding.remote import RemoteEmbedder


# Names of the providers, with a description for `kept models` if the name alone does not say enough.
PROVIDERS = {
    "auto": "",
    "local": "built in and offline; memory_search.local.model_path names another model",
    "openai": "",
    "gemini": "",
    "voyage": "",
    "ollama": "needs its server, at OLLAMA_HOST or memory_search.remote.base_url",
    "llama_cpp": "",
    "none": "words only",
}


# Classes in `providers`. A search with a model on this machine should not import them.
_REMOTE = {
    "openai": "OpenAIEmbedder",
    "gemini": "GeminiEmbedder",
    "voyage": "VoyageEmbedder",
    "ollama": "OllamaEmbedder",
}


def find_remote(name: str) -> type[RemoteEmbedder] | None:
    """Return the class of a provider on the network, or None for a model on this machine."""
    if name not in _REMOTE:
        return None
    from kept.embedding import providers

    remote: type[RemoteEmbedder] = getattr(providers, _REMOTE[name])
    return remote


def find_price(provider: str, model: str, settings: MemorySearchSettings) -> float | None:
    """Return US dollars per million tokens, or None if unknown: an unlisted model, or a custom base_url."""
    remote = find_remote(provider)
    if remote is None:
        return 0.0 if provider in PROVIDERS else None
    if remote.is_free:
        return 0.0
    return None if settings.remote.base_url or model not in remote.models else remote.models[model].usd


def default_model(name: str) -> tuple[str | None, int | None]:
    """Return the default model of a provider and its dimensions, as far as they are known without a call."""
    remote = find_remote(name)
    return (remote.default_model, remote.models[remote.default_model].dims) if remote else (None, None)


# choosing


@frozen
class EmbedderChain:
    """Usable embedders, the preferred one first, and the reasons why others that were named cannot be used, with what
    is used instead."""

    embedders: tuple[Embedder, ...]
    problems: tuple[str, ...]


def choose_chain(config: Config, *, own: Embedder | None = None, policy: RetryPolicy | None = None) -> EmbedderChain:
    """Return the provider and its fallback, or the caller's ``own`` embedder. One that cannot be used stops neither the
    other nor search by words."""
    settings = config.memory_search
    if not settings.store.vector.enabled and own is None:
        return EmbedderChain((), ())
    # Endpoint, model and key in the settings belong to the provider; the fallback is used with its defaults.
    defaults = replace(settings, model=None, dimensions=None, remote=RemoteSettings())
    embedders: dict[str, Embedder] = {}
    problems: list[str] = []
    named = ((settings.provider, settings), (settings.fallback, defaults))
    for name, its_settings in named if own is None else named[:1]:
        try:
            embedder = own or make_embedder(name, config, its_settings, policy=policy)
            if embedder is not None:
                embedders.setdefault(embedder.identity.key, embedder)
        except EmbeddingError as exc:
            problems.append(f"{exc.message} {exc.hint}".rstrip())
    preferred = next(iter(embedders.values()), None)
    instead = f"Using {preferred.identity.model}" if preferred else "Searching by word only"
    return EmbedderChain(tuple(embedders.values()), tuple(f"{instead}: {problem}" for problem in problems))


def make_embedder(
    name: str, config: Config, settings: MemorySearchSettings, *, policy: RetryPolicy | None = None
) -> Embedder | None:
    """Return the embedder of a provider with these settings, or None for search by words alone.

    `auto` is the best downloaded model that can run, or the built-in one, which always works: no text leaves the
    machine unless a remote provider is named.
    """
    remote = find_remote(name)
    if remote is not None:
        return remote.from_settings(settings, config.keys, policy=policy)
    if name == "none":
        return None
    if name == "llama_cpp" or settings.local.model_path:
        from kept.embedding.llama_cpp import open_model

        return open_model(settings.local)
    if settings.model or (name == "auto" and os.path.isdir(config.models_folder)):
        from kept.embedding.model_catalogue import open_chosen

        return open_chosen(config.models_folder, settings)
    from kept.embedding.static import StaticEmbedder

    return StaticEmbedder()

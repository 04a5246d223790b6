"""The table of embedding providers. A provider's code is imported when it is chosen, not before."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kept.config import MemorySearchSettings, ProviderKeys, RemoteSettings
from kept.embedding.base import Embedder
from kept.remote_errors import EmbeddingError
from kept.values import frozen

if TYPE_CHECKING:
    from kept.embedding.batch_api import BatchApi
    from kept.embedding.remote import RemoteEmbedder
    from kept.net import RetryPolicy


@frozen
class EmbeddingProvider:
    """Everything that is specific to a provider, except the variable of its key (`KEY_VARIABLES` in `config.keys`)."""

    name: str
    embedder: str = ""
    """`module:Class` below `kept.embedding` of a provider on the network."""
    batch_api: str = ""
    """`module:Class` of its batch API, if it has one."""
    usd_per_million_tokens: Mapping[str, float] | None = field(default_factory=dict)
    """List prices by model, as far as known; None if every model is free. Prices change: they give an estimate."""
    note: str = ""
    """Description for `kept models`, if the name alone does not say enough."""

    def embedder_class(self) -> type[RemoteEmbedder]:
        embedder_class: type[RemoteEmbedder] = _load(self.embedder)
        return embedder_class


def _load(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(f"kept.embedding.{module}"), name)


PROVIDERS = {
    provider.name: provider
    for provider in (
        EmbeddingProvider("auto", usd_per_million_tokens=None),
        EmbeddingProvider(
            "local",
            usd_per_million_tokens=None,
            note="built in and offline; memory_search.local.model_path names another model",
        ),
        EmbeddingProvider(
            "openai",
            embedder="openai:OpenAIEmbedder",
            batch_api="openai:FileBatches",
            usd_per_million_tokens={
                "text-embedding-3-small": 0.02,
                "text-embedding-3-large": 0.13,
                "text-embedding-ada-002": 0.10,
            },
        ),
        EmbeddingProvider(
            "gemini",
            embedder="gemini:GeminiEmbedder",
            batch_api="gemini:GeminiBatches",
            usd_per_million_tokens={"gemini-embedding-001": 0.15},
        ),
        EmbeddingProvider(
            "voyage",
            embedder="openai:VoyageEmbedder",
            batch_api="openai:FileBatches",
            usd_per_million_tokens={
                "voyage-4-large": 0.12,
                "voyage-4": 0.06,
                "voyage-4-lite": 0.02,
                "voyage-3-large": 0.18,
                "voyage-3.5": 0.06,
                "voyage-3.5-lite": 0.02,
            },
        ),
        EmbeddingProvider(
            "ollama",
            embedder="ollama:OllamaEmbedder",
            usd_per_million_tokens=None,
            note="needs its server, at OLLAMA_HOST or memory_search.remote.base_url",
        ),
        EmbeddingProvider("llama_cpp", usd_per_million_tokens=None),
        EmbeddingProvider("none", usd_per_million_tokens=None, note="words only"),
    )
}


def find_price(provider: str, model: str, settings: MemorySearchSettings) -> float | None:
    """Return US dollars per million tokens, or None if unknown: an unlisted model, or a custom base_url."""
    entry = PROVIDERS.get(provider)
    if entry is not None and entry.usd_per_million_tokens is None:
        return 0.0
    if entry is None or entry.usd_per_million_tokens is None or settings.remote.base_url:
        return None
    return entry.usd_per_million_tokens.get(model)


def find_batch_api(embedder: Embedder | None) -> BatchApi | None:
    """Return the batch API of an embedder's provider, or None if it has none."""
    provider = PROVIDERS.get(embedder.identity.provider) if embedder is not None else None
    if provider is None or not provider.batch_api or not isinstance(embedder, provider.embedder_class()):
        return None
    api: BatchApi = _load(provider.batch_api)(embedder)
    return api


def default_model(name: str) -> tuple[str | None, int | None]:
    """Return the default model of a provider and its dimensions, as far as they are known without a call."""
    provider = PROVIDERS.get(name)
    if provider is None or not provider.embedder:
        return None, None
    embedder_class = provider.embedder_class()
    return embedder_class.default_model, embedder_class.known_dims.get(embedder_class.default_model)


# choosing


@frozen
class EmbedderChain:
    """Usable embedders, the preferred one first, and the reasons why others that were named cannot be used."""

    embedders: tuple[Embedder, ...]
    problems: tuple[str, ...]


def choose_chain(
    settings: MemorySearchSettings,
    keys: ProviderKeys | None = None,
    *,
    models_folder: str | None = None,
    policy: RetryPolicy | None = None,
) -> EmbedderChain:
    """Return the provider and its fallback. One that cannot be used stops neither the other nor search by words."""
    if not settings.store.vector.enabled:
        return EmbedderChain((), ())
    # Endpoint, model and key in the settings belong to the provider; the fallback is used with its defaults.
    defaults = replace(settings, model=None, dimensions=None, remote=RemoteSettings())
    choices = ((settings.provider, settings), (settings.fallback, defaults))
    make = partial(make_embedder, keys=keys or ProviderKeys(), models_folder=models_folder, policy=policy)
    return _make_chain([partial(make, name, choice) for name, choice in choices])


def chain_of(embedder: Embedder) -> EmbedderChain:
    """Return a chain with an embedder that the caller made, if it can be used."""
    return _make_chain([lambda: embedder])


def _make_chain(makers: list[Callable[[], Embedder | None]]) -> EmbedderChain:
    embedders: dict[str, Embedder] = {}
    problems: list[str] = []
    for make in makers:
        try:
            embedder = make()
            if embedder is not None:
                embedders.setdefault(embedder.identity.key, embedder)
        except EmbeddingError as exc:
            problems.append(f"{exc.message} {exc.hint}".rstrip())
    return EmbedderChain(tuple(embedders.values()), tuple(problems))


def make_embedder(
    name: str,
    settings: MemorySearchSettings,
    keys: ProviderKeys,
    *,
    models_folder: str | None = None,
    policy: RetryPolicy | None = None,
) -> Embedder | None:
    """Return the embedder of a provider, or None for search by words alone.

    `auto` is the best model of ``models_folder`` that can run, or the built-in one, which always works: no text leaves
    the machine unless a remote provider is named.
    """
    provider = PROVIDERS[name]
    if provider.embedder:
        return provider.embedder_class().from_settings(settings, keys, policy=policy)
    if name == "none":
        return None
    if name == "llama_cpp" or settings.local.model_path:
        from kept.embedding.llama_cpp import open_model

        return open_model(settings.local)
    if settings.model or (name == "auto" and models_folder and os.path.isdir(models_folder)):
        from kept.embedding.model_catalogue import open_chosen

        return open_chosen(models_folder or "", settings)
    from kept.embedding.static import StaticEmbedder

    return StaticEmbedder()

"""From the name of a provider to the thing itself. Nothing of a provider is imported before it is chosen.

Another package adds a provider with an entry point in the group `kept.embedders`: its name is that of the provider,
and it is called with the settings (a MemorySearch) and returns an Embedder.
"""

from __future__ import annotations

from typing import Any

from kept.config import MemorySearch, ProviderKeys
from kept.embedding.base import Embedder
from kept.errors import EmbedderUnavailable, EmbeddingError, UnknownProvider

ENTRY_POINTS = "kept.embedders"
PROVIDERS = ("auto", "local", "openai", "gemini", "voyage", "ollama", "llama_cpp", "none")


def choose_embedder(settings: MemorySearch, keys: ProviderKeys | None = None) -> Embedder | None:
    """The embedder that the settings name, or None for keywords alone.

    `auto` is the built-in model, which always works: no text leaves the machine unless a remote provider is named.
    """
    if not settings.store.vector.enabled:
        return None
    return make_embedder(settings.provider, settings, keys or ProviderKeys())


def make_embedder(name: str, settings: MemorySearch, keys: ProviderKeys) -> Embedder | None:
    match name:
        case "none":
            return None
        case "auto" | "local":
            from kept.embedding.static import StaticEmbedder

            return StaticEmbedder()
        case "openai":
            from kept.embedding.openai import OpenAIEmbedder

            return OpenAIEmbedder.from_settings(settings, keys)
        case "gemini":
            from kept.embedding.gemini import GeminiEmbedder

            return GeminiEmbedder.from_settings(settings, keys)
        case "voyage":
            from kept.embedding.voyage import VoyageEmbedder

            return VoyageEmbedder.from_settings(settings, keys)
        case "ollama":
            from kept.embedding.ollama import OllamaEmbedder

            return OllamaEmbedder.from_settings(settings, keys)
        case "llama_cpp":
            raise EmbedderUnavailable(
                f"The embedding provider '{name}' is not available in this version.",
                hint="Set memory_search.provider to local or none.",
            )
        case _:
            return _make_added(name, settings)


def _make_added(name: str, settings: MemorySearch) -> Embedder:
    """One that another package brings. What goes wrong in there is the package's, and must not look like ours."""
    from importlib.metadata import entry_points

    added = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in added:
        raise _unknown(name, [*PROVIDERS, *added])
    try:
        made: Any = added[name].load()(settings)
    except EmbeddingError:
        raise
    except Exception as exc:
        raise EmbedderUnavailable(
            f"The embedding provider '{name}' could not be started ({type(exc).__name__}).",
            hint=f"It comes from {added[name].value}; see its documentation.",
        ) from exc
    if not isinstance(made, Embedder):
        raise EmbedderUnavailable(
            f"The embedding provider '{name}' does not give an embedder.",
            hint=f"{added[name].value} has to return an object with identity, calibration and embed.",
        )
    return made


def _unknown(name: str, known: list[str]) -> UnknownProvider:
    import difflib

    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    ask = f"Did you mean '{near[0]}'?" if near else f"Choose one of: {', '.join(known)}."
    return UnknownProvider(f"memory_search.provider: there is no embedding provider '{name}'.", hint=ask)

"""From the name of a provider to the thing itself. Nothing of a provider is imported before it is chosen."""

from __future__ import annotations

from kept.config import MemorySearch
from kept.embedding.base import Embedder
from kept.errors import EmbedderUnavailable


def choose_embedder(settings: MemorySearch) -> Embedder | None:
    """The embedder that the settings name, or None for keywords alone.

    `auto` is the built-in model: no text leaves the machine unless a remote provider is named.
    """
    if not settings.store.vector.enabled:
        return None
    match settings.provider:
        case "none":
            return None
        case "auto" | "local" | "llama_cpp" as name if settings.local.model_path or name == "llama_cpp":
            from kept.embedding.local_model import open_local_model

            return open_local_model(settings.local, gguf_only=name == "llama_cpp")
        case "auto" | "local":
            from kept.embedding.static import StaticEmbedder

            return StaticEmbedder()
        case name:
            raise EmbedderUnavailable(
                f"The embedding provider '{name}' is not available in this version.",
                hint="Set memory_search.provider to local or none.",
            )

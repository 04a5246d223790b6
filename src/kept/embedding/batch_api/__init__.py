"""Providers' batch APIs: many texts in one file, cheaper, answered within hours. A file for each provider."""

from __future__ import annotations

from kept.embedding.base import Embedder
from kept.embedding.batch_api.base import BatchApi


def find_batch_api(embedder: Embedder | None) -> BatchApi | None:
    """The batch API of an embedder's provider, where it has one."""
    from kept.embedding.remote import RemoteEmbedder

    if not isinstance(embedder, RemoteEmbedder):
        return None
    match embedder.provider:
        case "openai":
            from kept.embedding.batch_api.openai import OpenAIBatches
            from kept.embedding.openai import OpenAIEmbedder

            return OpenAIBatches(embedder) if isinstance(embedder, OpenAIEmbedder) else None
        case "voyage":
            from kept.embedding.batch_api.voyage import VoyageBatches
            from kept.embedding.voyage import VoyageEmbedder

            return VoyageBatches(embedder) if isinstance(embedder, VoyageEmbedder) else None
        case "gemini":
            from kept.embedding.batch_api.gemini import GeminiBatches
            from kept.embedding.gemini import GeminiEmbedder

            return GeminiBatches(embedder) if isinstance(embedder, GeminiEmbedder) else None
    return None

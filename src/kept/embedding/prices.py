"""What providers charge, in US dollars for a million tokens, as far as it is known here. Prices change: an estimate."""

from __future__ import annotations

from kept.config import MemorySearch

_LISTED = {
    ("openai", "text-embedding-3-small"): 0.02,
    ("openai", "text-embedding-3-large"): 0.13,
    ("openai", "text-embedding-ada-002"): 0.10,
    ("gemini", "gemini-embedding-001"): 0.15,
    ("voyage", "voyage-4-large"): 0.12,
    ("voyage", "voyage-4"): 0.06,
    ("voyage", "voyage-4-lite"): 0.02,
    ("voyage", "voyage-3-large"): 0.18,
    ("voyage", "voyage-3.5"): 0.06,
    ("voyage", "voyage-3.5-lite"): 0.02,
}
_ON_THIS_MACHINE = ("local", "llama_cpp", "ollama")


def find_price(provider: str, model: str, settings: MemorySearch) -> float | None:
    """None where nobody knows: a model that is not listed, or an endpoint that is not the provider's own."""
    if provider in _ON_THIS_MACHINE:
        return 0.0
    return None if settings.remote.base_url else _LISTED.get((provider, model))

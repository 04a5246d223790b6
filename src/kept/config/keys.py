"""Keys of remote providers, from the environment variables that everybody uses for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from kept.values import frozen

KEY_VARIABLES: dict[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "voyage": ("VOYAGE_API_KEY",),
    "telegram": ("TELEGRAM_BOT_TOKEN",),
}


@frozen
class ProviderKeys:
    """What the environment says about providers. Not a setting: nothing of it can stand in a file."""

    openai: str | None = field(default=None, repr=False)
    gemini: str | None = field(default=None, repr=False)
    voyage: str | None = field(default=None, repr=False)
    telegram: str | None = field(default=None, repr=False)
    ollama_host: str | None = None

    def find(self, provider: str) -> str | None:
        key: str | None = getattr(self, provider, None) if provider in KEY_VARIABLES else None
        return key


def read_keys(environ: Mapping[str, str]) -> ProviderKeys:
    found = {
        provider: next((value for name in names if (value := environ.get(name, "").strip())), None)
        for provider, names in KEY_VARIABLES.items()
    }
    return ProviderKeys(**found, ollama_host=environ.get("OLLAMA_HOST", "").strip() or None)

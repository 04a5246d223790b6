"""Keys of remote providers, from their customary environment variables; and all values that must stay secret."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from kept.base.values import frozen
from kept.config.read import settings_of

if TYPE_CHECKING:
    from kept.config.schema import Config

KEY_VARIABLES: dict[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "voyage": ("VOYAGE_API_KEY",),
    "telegram": ("TELEGRAM_BOT_TOKEN",),
    "discord": ("DISCORD_BOT_TOKEN",),
}


@frozen
class ProviderKeys:
    """Keys and addresses of providers in the environment. These are not settings and cannot be set in a file."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Keys by provider."""
    ollama_host: str | None = None
    claude: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Part of the environment that is passed to the program `claude`: all it needs, without the keys of others."""

    def find(self, provider: str) -> str | None:
        return self.values.get(provider)

    def as_environment(self) -> dict[str, str]:
        """Return the keys of embedding providers as variables, for a Kept process that another program starts."""
        names = {KEY_VARIABLES[provider][0]: self.find(provider) for provider in ("openai", "gemini", "voyage")}
        return {name: value for name, value in {**names, "OLLAMA_HOST": self.ollama_host}.items() if value}


def read_keys(environ: Mapping[str, str]) -> ProviderKeys:
    names = ((provider, name) for provider, variables in KEY_VARIABLES.items() for name in reversed(variables))
    passed = (
        name
        for name in environ
        if name in _PLAIN or name.upper() in _PROXIES or name.startswith(_CLAUDE_PREFIXES)
        if not name.startswith(_RUNNING_CLAUDE) and name not in _KEYS_OF_OTHERS
    )
    return ProviderKeys(
        {provider: key for provider, name in names if (key := environ.get(name, "").strip())},
        ollama_host=environ.get("OLLAMA_HOST", "").strip() or None,
        claude={name: environ[name] for name in passed},
    )


_PLAIN = frozenset(
    "HOME PATH USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TMP TEMP NODE_EXTRA_CA_CERTS SSL_CERT_FILE SSL_CERT_DIR"
    " CLOUD_ML_REGION DISABLE_TELEMETRY DISABLE_ERROR_REPORTING DISABLE_AUTOUPDATER".split()
)
_CLAUDE_PREFIXES = ("LC_", "XDG_", "ANTHROPIC_", "CLAUDE_", "AWS_", "GOOGLE_", "VERTEX_")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
_RUNNING_CLAUDE = (
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_CODE_SESSION",
    "CLAUDE_CODE_CHILD",
    "CLAUDE_PROJECT_DIR",
    "CLAUDE_PLUGIN",
    "CLAUDE_ENV_FILE",
)
"""Set by the Claude Code that Kept runs inside. A second one that sees them refuses to start, or joins that session."""
_KEYS_OF_OTHERS = ("GOOGLE_API_KEY",)


# secrets

_SECRET_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASSWORD")


def secrets_of(config: Config) -> Iterator[str]:
    """Yield every key, token and password in the settings and the environment. No message may contain them."""
    for name, value, is_secret in (*settings_of(config.agent), *settings_of(config.gateway)):
        if is_secret and value:
            yield from value.values() if isinstance(value, dict) else (str(value),)
        if name.endswith(("_url", ".url")) and value:
            yield from _secrets_in_url(str(value))
    yield from config.keys.values.values()
    yield from (value for name, value in config.keys.claude.items() if _SECRET_VARIABLE.search(name))


def _secrets_in_url(url: str) -> Iterator[str]:
    from urllib.parse import parse_qsl, unquote, urlsplit  # slow to import, and needed for messages only

    try:
        parts = urlsplit(url)
    except ValueError:
        return
    yield unquote(parts.netloc.rpartition("@")[0].rpartition(":")[2])
    yield from (value for _, value in parse_qsl(parts.query))

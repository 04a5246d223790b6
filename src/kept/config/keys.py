"""Keys of remote providers, from the environment variables that everybody uses for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from kept.values import frozen

KEY_VARIABLES: dict[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "voyage": ("VOYAGE_API_KEY",),
}


@frozen
class ProviderKeys:
    """What the environment says about providers. Not a setting: nothing of it can stand in a file."""

    anthropic: str | None = field(default=None, repr=False)
    openai: str | None = field(default=None, repr=False)
    gemini: str | None = field(default=None, repr=False)
    voyage: str | None = field(default=None, repr=False)
    ollama_host: str | None = None
    claude: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the program `claude` is given of the environment: what it needs, and no other program's keys."""

    def find(self, provider: str) -> str | None:
        key: str | None = getattr(self, provider, None) if provider in KEY_VARIABLES else None
        return key

    def as_environment(self) -> dict[str, str]:
        """The keys of embedding providers as the variables they came from, for a Kept that another program starts."""
        found = {names[0]: self.find(provider) for provider, names in KEY_VARIABLES.items() if provider != "anthropic"}
        return {name: value for name, value in {**found, "OLLAMA_HOST": self.ollama_host}.items() if value}


def read_keys(environ: Mapping[str, str]) -> ProviderKeys:
    found = {
        provider: next((value for name in names if (value := environ.get(name, "").strip())), None)
        for provider, names in KEY_VARIABLES.items()
    }
    return ProviderKeys(
        **found,
        ollama_host=environ.get("OLLAMA_HOST", "").strip() or None,
        claude={name: value for name, value in environ.items() if _is_for_claude(name)},
    )


_PLAIN = frozenset(
    "HOME PATH USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TMP TEMP NODE_EXTRA_CA_CERTS SSL_CERT_FILE SSL_CERT_DIR"
    " CLOUD_ML_REGION DISABLE_TELEMETRY DISABLE_ERROR_REPORTING DISABLE_AUTOUPDATER APPDATA LOCALAPPDATA USERPROFILE"
    " SYSTEMROOT COMSPEC PATHEXT".split()
)
_CLAUDE_PREFIXES = ("LC_", "XDG_", "ANTHROPIC_", "CLAUDE_", "AWS_", "GOOGLE_", "VERTEX_")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
_OF_A_RUNNING_CLAUDE = (
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_CODE_SESSION",
    "CLAUDE_CODE_CHILD",
    "CLAUDE_PROJECT_DIR",
    "CLAUDE_PLUGIN",
    "CLAUDE_ENV_FILE",
)
"""Set by a Claude Code inside which Kept runs. One that is told so refuses to start, or takes part in that session."""
_ANOTHERS_KEYS = ("GOOGLE_API_KEY",)


def _is_for_claude(name: str) -> bool:
    if name.startswith(_OF_A_RUNNING_CLAUDE) or name in _ANOTHERS_KEYS:
        return False
    return name in _PLAIN or name.upper() in _PROXIES or name.startswith(_CLAUDE_PREFIXES)

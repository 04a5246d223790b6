"""The user's settings without keys, tokens and passwords, for an archive. Pure."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from kept.config.gateway_settings import GatewaySettings
from kept.config.layers import secret_names
from kept.config.read import snake
from kept.config.schema import AgentSettings
from kept.config.settings_file import parse_settings
from kept.redact import redact
from kept.values import frozen


@frozen
class SettingsCopy:
    content: bytes
    removed: tuple[str, ...]
    """Names of the settings that are not in it, such as 'gateway.telegram.token'."""


def copy_settings(path: str, raw: bytes) -> SettingsCopy:
    """Return settings without those whose values are secret. ``path`` is for messages.

    A setting is secret if the schema says so, if its value looks like a key, or if it is an address with a password or
    parameters. Settings with a secret lose their comments, which may have it too.
    """
    tree = parse_settings(path, raw)
    text = raw.decode("utf-8-sig")
    names = {name for part in (AgentSettings, GatewaySettings) for name in secret_names(part)}
    names.add("user_tokens")  # a removed setting, which a file may still have
    removed: list[str] = []
    public = _without_secrets(tree, "", names, removed)
    if not removed and redact(text) == text and not any(name in snake(text).lower() for name in names):
        return SettingsCopy(raw, ())
    import yaml

    content = str(yaml.safe_dump(public, allow_unicode=True, sort_keys=False)) if public else ""
    return SettingsCopy(redact(content).encode(), tuple(sorted(removed)))


def _without_secrets(tree: Any, at: str, names: set[str], removed: list[str]) -> Any:
    """Return a part of the settings, and add the names of what is left out to ``removed``. ``at`` is its own name."""
    if not isinstance(tree, dict | list):
        return tree
    public: dict[Any, Any] = {}
    for step, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        name = f"{at}.{step}".lstrip(".")
        texts = value if isinstance(value, list) else [value]
        is_named = isinstance(step, str) and snake(step) in names
        if is_named or any(isinstance(text, str) and _is_secret(text, str(step)) for text in texts):
            removed.append(name)
        else:
            public[step] = _without_secrets(value, name, names, removed)
    return public if isinstance(tree, dict) else list(public.values())


def _is_secret(value: str, name: str) -> bool:
    return redact(value) != value or redact(f"{name}: {value}") != f"{name}: {value}" or _has_credentials(value)


def _has_credentials(value: str) -> bool:
    if "://" not in value:
        return False
    try:
        parts = urlsplit(value)
    except ValueError:
        return True
    return "@" in parts.netloc or bool(parts.query)

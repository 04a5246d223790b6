"""The user's settings without keys, tokens and passwords, for an archive. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from kept.config.gateway_settings import GatewaySettings
from kept.config.layers import secret_names
from kept.config.read import snake
from kept.config.schema import AgentSettings
from kept.config.settings_file import parse_settings
from kept.redact import REDACTED, redact
from kept.values import frozen

_MIN_CHARS = 4
_Path = tuple[str | int, ...]


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
    secrets = dict(_iter_secret(tree, (), names))
    if not secrets and redact(text) == text and not any(name in snake(text).lower() for name in names):
        return SettingsCopy(raw, ())
    import yaml

    for key_path in secrets:
        tree = _without(tree, key_path)
    content = str(yaml.safe_dump(tree, allow_unicode=True, sort_keys=False)) if tree else ""
    for value in secrets.values():  # it may be repeated in a setting that is not secret
        for text in _texts(value):
            content = content.replace(text, REDACTED) if len(text) >= _MIN_CHARS else content
    return SettingsCopy(content.encode(), tuple(sorted(".".join(map(str, key_path)) for key_path in secrets)))


def _without(tree: Any, key_path: _Path) -> Any:
    step, *rest = key_path
    items = enumerate(tree) if isinstance(tree, list) else tree.items()
    others = [
        (key, _without(value, tuple(rest)) if key == step else value) for key, value in items if rest or key != step
    ]
    return [value for _, value in others] if isinstance(tree, list) else dict(others)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
    elif value is not None:
        yield str(value)


def _iter_secret(tree: Any, at: _Path, names: set[str]) -> Iterator[tuple[_Path, Any]]:
    """Yield the places of secret values, and the values. ``at`` is the place of the tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for step, value in items:
        key_path = (*at, step)
        is_named = isinstance(step, str) and snake(step) in names
        texts = value if isinstance(value, list) else [value]
        if is_named or any(isinstance(text, str) and _is_secret(text, str(step)) for text in texts):
            yield key_path, value
        elif isinstance(value, dict | list):
            yield from _iter_secret(value, key_path, names)


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

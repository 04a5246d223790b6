"""The user's settings without keys, tokens and passwords, for an archive. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from kept.config.edit import Path, find_value, remove_value
from kept.config.gateway_settings import GatewaySettings
from kept.config.layers import secret_names
from kept.config.read import snake
from kept.config.schema import AgentSettings
from kept.config.settings_file import parse_settings
from kept.errors import ConfigError
from kept.redact import REDACTED, redact
from kept.values import frozen

_MIN_CHARS = 4


@frozen
class SettingsCopy:
    content: bytes
    removed: tuple[str, ...]
    """Names of the settings that are not in it, such as 'gateway.http.token'."""


def copy_settings(path: str, raw: bytes) -> SettingsCopy:
    """Return settings without those whose values are secret. ``path`` is for messages.

    A setting is secret if the schema says so, if its value looks like a key, or if it is an address with a password or
    parameters. Comments keep their place, and what looks like a secret in them is blanked out.
    """
    text = raw.decode("utf-8-sig")
    tree = parse_settings(path, raw)
    key_paths = [*_iter_secret(tree, ())]
    values = {
        value for key_path in key_paths for value in _texts(find_value(tree, key_path)) if len(value) >= _MIN_CHARS
    }
    for key_path in key_paths:
        text = _without(text, key_path)
    text = _blank_comments(path, text, values)
    for value in values:  # a value that is repeated elsewhere, in a setting that is not secret
        text = text.replace(value, REDACTED)
    return SettingsCopy(text.encode(), tuple(sorted(".".join(map(str, key_path)) for key_path in key_paths)))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
    elif value is not None:
        yield str(value)


def _without(text: str, key_path: Path) -> str:
    try:
        return remove_value(text, key_path)
    except ConfigError:
        # The editor cannot cut this value out. The settings are written anew, without comments.
        return _dump(_removed(parse_settings("", text.encode()), key_path))


def _blank_comments(path: str, text: str, values: set[str]) -> str:
    """Return the text with secrets in comments blanked out. If that changed a setting, return the settings alone."""
    blanked = "\n".join(_blank(line, values) for line in text.split("\n"))
    tree = parse_settings(path, text.encode())
    try:
        if parse_settings(path, blanked.encode()) == tree:
            return blanked
    except ConfigError:
        pass
    return _dump(tree)


def _blank(line: str, values: set[str]) -> str:
    code, mark, comment = line.partition("#")
    if not mark:
        return line
    is_suspect = any(name in snake(comment).lower() for name in _secret_names()) or any(
        map(comment.__contains__, values)
    )
    return f"{code}{mark} {REDACTED}" if is_suspect else code + mark + redact(comment)


def _dump(tree: Any) -> str:
    import yaml

    return str(yaml.safe_dump(tree, allow_unicode=True, sort_keys=False)) if tree else ""


def _removed(tree: Any, key_path: Path) -> Any:
    step, *rest = key_path
    if isinstance(tree, list):
        return [_removed(item, tuple(rest)) if at == step else item for at, item in enumerate(tree)]
    if not rest:
        return {key: value for key, value in tree.items() if key != step}
    return {key: _removed(value, tuple(rest)) if key == step else value for key, value in tree.items()}


# finding secrets


def _secret_names() -> frozenset[str]:
    return frozenset(name for part in (AgentSettings, GatewaySettings) for name in secret_names(part))


def _iter_secret(tree: Any, at: Path) -> Iterator[Path]:
    """Yield the places of secret values. ``at`` is the place of the tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for step, value in items:
        key_path = (*at, step)
        if isinstance(step, str) and snake(step) in _secret_names():
            yield key_path
        elif isinstance(value, dict | list):
            yield from _secrets_inside(value, key_path)
        elif isinstance(value, str) and _is_secret(value, str(step)):
            yield key_path


def _secrets_inside(value: Any, key_path: Path) -> Iterator[Path]:
    """Yield the places in a group. A list of texts with a secret is removed as a whole."""
    if isinstance(value, list) and any(isinstance(item, str) and _is_secret(item, "") for item in value):
        yield key_path
    else:
        yield from _iter_secret(value, key_path)


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

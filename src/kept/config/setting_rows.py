"""Settings as rows: name, value and origin of each, without secrets, as people and scripts read them."""

from __future__ import annotations

import re
from dataclasses import asdict, is_dataclass
from typing import Any

from kept.config.layers import LoadedConfig, settings_of
from kept.values import frozen

SECRET_SHOWN = "(set)"
"""Shown instead of a secret."""


@frozen
class SettingRow:
    """A setting with its value and the layer that it comes from."""

    name: str
    value: Any
    origin: str
    is_secret: bool = False


def list_settings(loaded: LoadedConfig) -> list[SettingRow]:
    """Return every setting. A secret has `SECRET_SHOWN` as its value if it is set."""
    rows: list[SettingRow] = []
    for part, at in ((loaded.config.agent, ""), (loaded.config.gateway, "gateway")):
        for name, value, is_secret in settings_of(part, at):
            is_url = name.endswith(("_url", ".url"))
            shown = SECRET_SHOWN if is_secret and value else _without_secrets(value) if is_url else value
            rows.append(SettingRow(name, shown, _origin(loaded.origins, name), is_secret))
    return rows


def plain_value(value: Any) -> Any:
    """Return the value of a setting as YAML and JSON can write it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: item for name, item in asdict(value).items() if item is not None}
    if isinstance(value, dict):
        return {name: plain_value(item) for name, item in value.items()}
    return [plain_value(item) for item in value] if isinstance(value, tuple) else value


def value_text(value: Any) -> str:
    """Return the value of a setting as people read it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ", ".join(str(plain_value(item)) for item in value) or "(none)"
    return "(none)" if value is None or value == {} else str(plain_value(value))


def _origin(origins: dict[str, str], name: str) -> str:
    below = (origin for key, origin in origins.items() if key == name or key.startswith(f"{name}."))
    return next(below, "default")


def _without_secrets(url: Any) -> Any:
    """Remove the password and the query from a URL. Either may be a key."""
    return re.sub(r"\?.*", "?(set)", re.sub(r"//[^/@]*@", "//(set)@", url)) if url else url

"""Single settings by their names: the kind of one, its value as a person types it, and rows of all of them."""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from kept.base.values import frozen
from kept.config.layers import LoadedConfig
from kept.config.read import group_by_name, hints, nearest, read_value, settings_of, snake
from kept.config.schema import Settings
from kept.errors import ConfigError, UsageError

SECRET_SHOWN = "(set)"
"""Shown instead of a secret."""


@frozen
class SettingRow:
    """A setting with its value and the layer that it comes from."""

    name: str
    value: Any
    origin: str
    is_secret: bool = False


def find_setting(name: str) -> tuple[Any, Mapping[str, Any]]:
    """Return the type of a setting and the metadata of its field. Raise ConfigError with the nearest name if there is
    none of this name."""
    kind: Any = Settings
    metadata: Mapping[str, Any] = {}
    for key in name.split("."):
        if group := group_by_name(kind):
            kind, metadata = group, {}
            continue
        known = hints(kind) if is_dataclass(kind) else {}
        if key not in known:
            names = setting_names()
            by_end = next((known for known in names if known.endswith(f".{name}")), None)
            hint = f"Did you mean '{by_end}'?" if by_end else nearest(name, names)
            raise ConfigError(f"{name}: there is no such setting.", hint=hint)
        metadata = kind.__dataclass_fields__[key].metadata
        kind = known[key]
    if is_dataclass(kind):
        below = next(known for known in (*setting_names(), f"{name}.…") if known.startswith(f"{name}."))
        raise ConfigError(f"{name}: is a group of settings.", hint=f"Set one of them, such as {below}.")
    return kind, metadata


def read_typed(name: str, values: Sequence[str]) -> Any:
    """Return the value of a setting as it is written to the file. Raise ConfigError if it is not one."""
    kind, metadata = find_setting(name)
    value: Any = list(values) if len(values) > 1 else values[0]
    if len(values) > 1 and typing.get_origin(kind) is not tuple:
        raise UsageError(f"{name}: takes one value.", hint="Put quotes around a value with spaces.")
    if value == "null" and type(None) in typing.get_args(kind):
        return None
    notices: list[str] = []
    try:
        stored = read_value(kind, value, name, notices, metadata)
    except ConfigError as exc:
        raise ConfigError(exc.message, hint=exc.hint if "Choose" in exc.hint else "Nothing was changed.") from None
    if notices:
        raise ConfigError(f"{notices[0].partition(';')[0]}.", hint="Nothing was changed.")
    return plain_value(stored)


def setting_names() -> list[str]:
    """Return the name of every setting."""
    return [name for name, _, _ in settings_of(Settings())]


def spell(key: str) -> str:
    """Return a key in snake_case. The names that users choose, which come last, stay as they are."""
    known = {"agents", "defaults", *(part for name in setting_names() for part in name.split("."))}
    return ".".join(snake(part) if snake(part) in known else part for part in key.strip().split("."))


def list_settings(loaded: LoadedConfig) -> list[SettingRow]:
    """Return every setting. A secret has `SECRET_SHOWN` as its value if it is set."""
    rows: list[SettingRow] = []
    for name, value, is_secret in settings_of(loaded.config.agent):
        is_url = name.endswith(("_url", ".url"))
        shown = SECRET_SHOWN if is_secret and value else _without_secrets(value) if is_url else value
        layers = (layer for key, layer in loaded.origins.items() if f"{key}.".startswith(f"{name}."))
        rows.append(SettingRow(name, shown, next(layers, "default"), is_secret))
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


def _without_secrets(url: Any) -> Any:
    """Remove the password and the query from a URL. Either may be a key."""
    return re.sub(r"\?.*", "?(set)", re.sub(r"//[^/@]*@", "//(set)@", url)) if url else url

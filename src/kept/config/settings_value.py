"""Reads the value of one setting as a person types it."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import Any

from kept.config.bounds import find_outside
from kept.config.gateway_settings import GatewaySettings
from kept.config.layers import Layer, put_setting, secret_names, settings_of
from kept.config.read import group_by_name, hints, snake
from kept.config.schema import AgentSettings
from kept.errors import ConfigError, UsageError
from kept.safe_yaml import YamlRefused, load_yaml


def read_value(name: str, values: Sequence[str]) -> Any:
    """Return the value of a setting as it is written to the file. Raise ConfigError if it is not one."""
    kind = kind_of(name)
    value = _parse(kind, values, name)
    layer = Layer("command")
    try:
        put_setting(layer, name.split("."), value, at=name)
    except ConfigError as exc:
        raise ConfigError(exc.message, hint=exc.hint if "Choose" in exc.hint else "Nothing was changed.") from None
    problem = find_outside(AgentSettings, layer.agent, at="") or find_outside(
        GatewaySettings, layer.gateway, at="gateway"
    )
    if problem:
        raise ConfigError(problem, hint="Nothing was changed.")
    stored = _leaf(layer, name)
    return value if group_by_name(kind) else list(stored) if isinstance(stored, tuple) else stored


def _parse(kind: Any, values: Sequence[str], name: str) -> Any:
    origin = typing.get_origin(kind)
    if len(values) > 1:
        if origin is not tuple:
            raise UsageError(f"{name}: takes one value.", hint="Put quotes around a value with spaces.")
        return list(values)
    text = values[0]
    if text == "null" and type(None) in typing.get_args(kind):
        return None
    if origin in (tuple, dict) and text[:1] in ("[", "{"):
        try:
            return load_yaml(text)
        except YamlRefused as exc:
            raise ConfigError(f"{name}: {exc.problem}.", hint="Nothing was changed.") from exc
    return text


def _leaf(layer: Layer, name: str) -> Any:
    """Return the one value that a layer has."""
    tree: Any = layer.gateway if name.startswith("gateway.") else layer.agent
    for key in name.removeprefix("gateway.").split("."):
        tree = tree[snake(key) if snake(key) in tree else key]
    return tree


def kind_of(name: str) -> Any:
    """Return the type of a setting. Raise ConfigError with the nearest name if there is none of this name."""
    keys = name.split(".")
    kind: Any = AgentSettings
    if keys[0] == "gateway":
        kind, keys = GatewaySettings, keys[1:]
    for key in keys:
        if group := group_by_name(kind):
            kind = group
        elif is_dataclass(kind) and snake(key) in hints(kind):  # type: ignore[arg-type]
            kind = hints(kind)[snake(key)]  # type: ignore[arg-type]
        else:
            raise ConfigError(f"{name}: there is no such setting.", hint=_nearest_name(name))
    if is_dataclass(kind) or not keys:
        below = [setting for setting in setting_names() if setting.startswith(f"{name}.")]
        raise ConfigError(f"{name}: is a group of settings.", hint=f"Set one of them, such as {below[0]}.")
    return kind


def setting_names() -> list[str]:
    """Return the name of every setting."""
    parts = ((AgentSettings(), ""), (GatewaySettings(), "gateway"))
    return [name for part, at in parts for name, _, _ in settings_of(part, at)]


def _nearest_name(name: str) -> str:
    """Return a hint with the nearest setting: one that ends like this, or is spelt like it."""
    import difflib

    names = setting_names()
    by_end = [known for known in names if known.endswith(f".{name}")]
    last = name.rpartition(".")[2]
    similar = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    by_last = difflib.get_close_matches(last, [known.rpartition(".")[2] for known in names], n=1, cutoff=0.75)
    by_last = [known for known in names if by_last and known.rpartition(".")[2] == by_last[0]]
    nearest = (by_end or similar or by_last)[:1]
    return f"Did you mean '{nearest[0]}'?" if nearest else "'kept config explain' lists all settings."


def is_secret(name: str) -> bool:
    last = snake(name.rpartition(".")[2])
    return any(last == known for part in (AgentSettings, GatewaySettings) for known in secret_names(part))

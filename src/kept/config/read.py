"""From an untyped tree, as YAML gives it, to the classes of the schema."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast

from kept.config.schema import HybridSettings
from kept.errors import ConfigError

T = TypeVar("T")

_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")


def snake(key: str) -> str:
    return _CAMEL.sub(r"_\1", key).lower().replace("-", "_")


@cache
def hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def normalise(kind: type, tree: Any, *, at: str) -> dict[str, Any]:
    """The same tree with snake_case keys, every one of them known to the schema."""
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{at or 'the file'}: expected a group of settings, got {describe(tree)}.")
    known = hints(kind)
    out: dict[str, Any] = {}
    for raw_key, value in tree.items():
        key = snake(str(raw_key))
        where = f"{at}.{key}" if at else key
        if key not in known:
            raise unknown_key(where, str(raw_key), list(known))
        if key in out:
            raise ConfigError(f"{where}: given twice, once in camelCase.")
        inner = known[key]
        out[key] = normalise(inner, value, at=where) if dataclasses.is_dataclass(inner) else value  # type: ignore[arg-type]
    return out


def unknown_key(where: str, key: str, known: list[str]) -> ConfigError:
    return ConfigError(f"{where}: there is no such setting.", hint=nearest(snake(key), known))


def nearest(name: str, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"Did you mean '{near[0]}'?" if near else f"Known here: {', '.join(sorted(known))}."


def build(kind: type[T], tree: dict[str, Any], *, at: str) -> T:
    """An instance of a schema class from a normalised tree. Numbers are clamped, anything else must fit."""
    values: dict[str, Any] = {}
    known = hints(cast("type", kind))
    for spec in dataclasses.fields(kind):  # type: ignore[arg-type]
        if spec.name not in tree:
            continue
        where = f"{at}.{spec.name}" if at else spec.name
        wanted = known[spec.name]
        if dataclasses.is_dataclass(wanted):
            values[spec.name] = build(wanted, tree[spec.name], at=where)  # type: ignore[arg-type]
        else:
            values[spec.name] = clamp(coerce(wanted, tree[spec.name], where), spec.metadata)
    made = kind(**values)
    return _normalise_weights(made) if isinstance(made, HybridSettings) else made  # type: ignore[return-value]


def group_by_name(wanted: Any) -> Any:
    """The class of the groups, where names that the user chooses each have a group of settings."""
    if typing.get_origin(wanted) is not dict:
        return None
    item = typing.get_args(wanted)[1]
    return item if dataclasses.is_dataclass(item) else None


def coerce(wanted: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(wanted)
    if origin is Literal:
        return _one_of(typing.get_args(wanted), value, where)
    if origin in (Union, types.UnionType):
        return _any_of(typing.get_args(wanted), value, where)
    if origin is tuple:
        return _list_of(typing.get_args(wanted)[0], value, where)
    if origin is dict:
        return _mapping(typing.get_args(wanted)[1], value, where)
    return _scalar(wanted, value, where)


def _one_of(allowed: tuple[Any, ...], value: Any, where: str) -> Any:
    if isinstance(value, str) and snake(value) in allowed:
        return snake(value)
    if value in allowed:
        return value
    # YAML reads a bare `none` as text, but an unquoted null as nothing at all.
    if value is None and "none" in allowed:
        return "none"
    raise ConfigError(
        f"{where}: {describe(value)} is not one of the choices.",
        hint=f"Choose one of: {', '.join(map(str, allowed))}.",
    )


def _any_of(options: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in options:
        return None
    error: ConfigError | None = None
    for option in options:
        if option is type(None):
            continue
        try:
            return coerce(option, value, where)
        except ConfigError as exc:
            error = error or exc
    raise error or ConfigError(f"{where}: {describe(value)} does not fit.")


def _list_of(item: Any, value: Any, where: str) -> tuple[Any, ...]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{where}: expected a list, got {describe(value)}.")
    return tuple(coerce(item, one, f"{where}[{at}]") for at, one in enumerate(value))


def _mapping(item: Any, value: Any, where: str) -> dict[str, Any]:
    """Names that the user chooses, each with a text or a group of settings."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        # Not repeated: headers carry keys.
        raise ConfigError(f"{where}: expected names and values, got {describe(value, hide=True)}.")
    if not dataclasses.is_dataclass(item):
        return {str(key): str(one) for key, one in value.items()}
    return {str(key): _group(item, one, f"{where}.{key}") for key, one in value.items()}


def _group(kind: Any, value: Any, where: str) -> Any:
    return value if isinstance(value, kind) else build(kind, normalise(kind, value, at=where), at=where)


_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def _scalar(wanted: type, value: Any, where: str) -> Any:
    if wanted is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in _WORDS:
            return _WORDS[value.lower()]
        raise ConfigError(f"{where}: expected true or false, got {describe(value)}.")
    if wanted is str:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
        raise ConfigError(f"{where}: expected text, got {describe(value)}.")
    return _number(wanted, value, where)


def _number(wanted: type, value: Any, where: str) -> int | float:
    kind = "a whole number" if wanted is int else "a number"
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or (wanted is int and number != int(number)):
        raise ConfigError(f"{where}: expected {kind}, got {describe(value)}.")
    return int(number) if wanted is int else number


def clamp(value: Any, bounds: Any) -> Any:
    if "low" not in bounds or isinstance(value, str) or value is None:
        return value
    kept = min(max(value, bounds["low"]), bounds["high"])
    return type(value)(kept)


def _normalise_weights(hybrid: HybridSettings) -> HybridSettings:
    """Weights given explicitly sum to 1; where only one is given, the other is what is left."""
    vector, text = hybrid.vector_weight, hybrid.text_weight
    if isinstance(vector, str) and isinstance(text, str):
        return hybrid
    vector = 1 - float(text) if isinstance(vector, str) else float(vector)
    text = 1 - vector if isinstance(text, str) else float(text)
    total = vector + text
    if total <= 0:
        return dataclasses.replace(hybrid, vector_weight="auto", text_weight="auto")
    return dataclasses.replace(hybrid, vector_weight=vector / total, text_weight=text / total)


def describe(value: Any, *, hide: bool = False) -> str:
    if isinstance(value, dict):
        return "a group of settings"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    return "a single value" if hide else f"'{value}'"

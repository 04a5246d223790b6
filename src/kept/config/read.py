"""Turns an untyped tree, as read from YAML, into instances of the schema classes."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast

from kept.config.old_names import OldName, find_old_name
from kept.config.removed import is_removed
from kept.errors import ConfigError

T = TypeVar("T")

_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")


def snake(key: str) -> str:
    return _CAMEL.sub(r"_\1", key).lower().replace("-", "_")


@cache
def hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def normalise(kind: type, tree: Any, *, at: str) -> dict[str, Any]:
    """Return a tree with snake_case keys. Raise ConfigError for a key that the schema does not have."""
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{at or 'the file'}: expected a group of settings, got {describe(tree)}.")
    known = hints(kind)
    out: dict[str, Any] = {}
    old_names: list[tuple[OldName, Any]] = []
    for raw_key, value in tree.items():
        key = snake(str(raw_key))
        where = f"{at}.{key}" if at else key
        if key not in known:
            if old := find_old_name(kind, key):
                old_names.append((old, value))
                continue
            if is_removed(where):
                continue
            raise unknown_key(where, str(raw_key), list(known))
        if key in out:
            raise ConfigError(f"{where}: given twice, once in camelCase.")
        inner = known[key]
        out[key] = normalise(inner, value, at=where) if dataclasses.is_dataclass(inner) else value  # type: ignore[arg-type]
    for old, value in old_names:
        old.translate(out, value)
    return out


def unknown_key(where: str, key: str, known: list[str]) -> ConfigError:
    return ConfigError(f"{where}: there is no such setting.", hint=nearest(snake(key), known))


_MOST_NAMES = 20


def nearest(name: str, known: list[str]) -> str:
    """Return a hint with the closest known name, or with all of them if none is close and they are few."""
    import difflib

    if near := difflib.get_close_matches(name, known, n=1, cutoff=0.6):
        return f"Did you mean '{near[0]}'?"
    if len(known) > _MOST_NAMES:
        return "'kept config explain' lists all settings."
    return f"Known here: {', '.join(sorted(known))}."


def build(kind: type[T], tree: dict[str, Any], *, at: str) -> T:
    """Return an instance of a schema class from a normalised tree. Clamp numbers; raise ConfigError for other misfits.

    A class may adjust its instances in a method ``after_build``.
    """
    values: dict[str, Any] = {}
    known = hints(cast("type", kind))
    for spec in dataclasses.fields(kind):  # type: ignore[arg-type]
        if spec.name not in tree:
            continue
        where = f"{at}.{spec.name}" if at else spec.name
        kind_of_value = known[spec.name]
        if dataclasses.is_dataclass(kind_of_value):
            values[spec.name] = build(kind_of_value, tree[spec.name], at=where)  # type: ignore[arg-type]
        else:
            values[spec.name] = clamp(coerce(kind_of_value, tree[spec.name], where), spec.metadata)
    settings = kind(**values)
    after_build: Any = getattr(settings, "after_build", None)
    return cast("T", after_build()) if after_build else settings


def group_by_name(kind: Any) -> Any:
    """Return the class of the groups if users choose their names, as in ``by_channel``; otherwise None."""
    if typing.get_origin(kind) is not dict:
        return None
    item = typing.get_args(kind)[1]
    return item if dataclasses.is_dataclass(item) else None


def coerce(kind: Any, value: Any, where: str) -> Any:
    """Return a value as the type of its setting, or raise ConfigError."""
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _group(kind, value, where)
    if origin is Literal:
        return _choice(typing.get_args(kind), value, where)
    if origin in (Union, types.UnionType):
        return _any_of(typing.get_args(kind), value, where)
    if origin is tuple:
        return _list_of(typing.get_args(kind)[0], value, where)
    if origin is dict:
        return _mapping(typing.get_args(kind)[1], value, where)
    return _scalar(kind, value, where)


def read_flow(kind: Any, value: Any, where: str) -> Any:
    """Return what a text such as `{a: b}` or `[a, b]` says, as people type a mapping or a list; else the value."""
    fits = typing.get_origin(kind) in (tuple, dict) or dataclasses.is_dataclass(kind)
    if not fits or not isinstance(value, str) or value[:1] not in ("[", "{"):
        return value
    from kept.safe_yaml import YamlRefused, load_yaml

    try:
        return load_yaml(value)
    except YamlRefused as exc:
        raise ConfigError(f"{where}: {exc.problem}.", hint="Nothing was changed.") from exc


def _choice(allowed: tuple[Any, ...], value: Any, where: str) -> Any:
    if isinstance(value, str) and snake(value) in allowed:
        return snake(value)
    if value in allowed:
        return value
    # YAML reads a bare `none` as text, but an unquoted null as None.
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
    return tuple(coerce(item, element, f"{where}[{at}]") for at, element in enumerate(value))


def _mapping(item: Any, value: Any, where: str) -> dict[str, Any]:
    """Return names that the user chose, each with a text or a group of settings."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        # The value is not shown: headers carry keys.
        raise ConfigError(f"{where}: expected names and values, got {describe(value, hide=True)}.")
    if typing.get_origin(item) in (tuple, Literal):
        return {str(key): coerce(item, inner, f"{where}.{key}") for key, inner in value.items()}
    if not dataclasses.is_dataclass(item):
        return {str(key): str(text) for key, text in value.items()}
    return {str(key): _group(item, group, f"{where}.{key}") for key, group in value.items()}


def _group(kind: Any, value: Any, where: str) -> Any:
    """Return a group of settings. Raise ConfigError if one without a default is missing."""
    if isinstance(value, dict):
        missing = [name for name in _required(kind) if name not in map(snake, map(str, value))]
        if missing:
            raise ConfigError(f"{where}: '{missing[0]}' is missing.")
    return value if isinstance(value, kind) else build(kind, normalise(kind, value, at=where), at=where)


def _required(kind: Any) -> list[str]:
    specs = dataclasses.fields(kind)
    return [spec.name for spec in specs if spec.default is spec.default_factory is dataclasses.MISSING]


_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def _scalar(kind: type, value: Any, where: str) -> Any:
    if kind is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in _WORDS:
            return _WORDS[value.lower()]
        raise ConfigError(f"{where}: expected true or false, got {describe(value)}.")
    if kind is str:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
        raise ConfigError(f"{where}: expected text, got {describe(value)}.")
    return _number(kind, value, where)


def _number(kind: type, value: Any, where: str) -> int | float:
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or (kind is int and number != int(number)):
        raise ConfigError(
            f"{where}: expected {'a whole number' if kind is int else 'a number'}, got {describe(value)}."
        )
    return int(number) if kind is int else number


def clamp(value: Any, bounds: Any) -> Any:
    """Return a number within the bounds of its field, and any other value as it is."""
    if "low" not in bounds or isinstance(value, str) or value is None:
        return value
    return type(value)(min(max(value, bounds["low"]), bounds["high"]))


def range_text(bounds: Mapping[str, Any]) -> str:
    return f"{bounds['low']:,} to {bounds['high']:,}"


def range_notices(kind: Any, tree: Mapping[str, Any], origins: Mapping[str, str], *, at: str) -> Iterator[str]:
    """Yield a notice for each number of a checked tree that is outside its range, which is clamped."""
    for spec in dataclasses.fields(kind):
        if spec.name not in tree:
            continue
        name = f"{at}.{spec.name}" if at else spec.name
        inner, value = hints(kind)[spec.name], tree[spec.name]
        if dataclasses.is_dataclass(inner):
            yield from range_notices(inner, value, origins, at=name)
        elif group := group_by_name(inner):
            for key, settings in (value or {}).items():
                yield from range_notices(group, settings, origins, at=f"{name}.{key}")
        elif "low" in spec.metadata and (number := coerce(inner, value, name)) != (
            used := clamp(number, spec.metadata)
        ):
            origin = f" ({origins[name]})" if name in origins else ""
            yield f"{name}: {value} is out of range ({range_text(spec.metadata)}); {used} is used{origin}."


def describe(value: Any, *, hide: bool = False) -> str:
    """Return a value in words for a message; ``hide`` leaves out the text of a scalar."""
    if isinstance(value, dict):
        return "a group of settings"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    return "a single value" if hide else f"'{value}'"

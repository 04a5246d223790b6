"""Turns an untyped tree, as read from YAML, into instances of the schema classes."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast

from kept.config.old_names import OldName, find_old_name
from kept.config.removed import is_removed, removal_notice
from kept.errors import ConfigError

T = TypeVar("T")

_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")


def snake(key: str) -> str:
    return _CAMEL.sub(r"_\1", key).lower().replace("-", "_")


@cache
def hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def normalise(kind: type, tree: Any, *, at: str, notices: list[str] | None = None) -> dict[str, Any]:
    """Return a tree with snake_case keys. Raise ConfigError for a key that the schema does not have.

    What becomes of the names that Kept does not have, or no longer, is added to ``notices``.
    """
    notices = [] if notices is None else notices
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
                notices.append(f"{where}: {old.notice}")
                continue
            if is_removed(where):
                notices.append(removal_notice(where))
                continue
            raise unknown_key(where, str(raw_key), list(known))
        if key in out:
            raise ConfigError(f"{where}: given twice, once in camelCase.")
        out[key] = normalise_value(known[key], value, at=where, notices=notices)
    for old, value in old_names:
        old.translate(out, value)
    return out


def normalise_value(kind: Any, value: Any, *, at: str, notices: list[str]) -> Any:
    """Return the value of a setting, with snake_case keys if it is a group of settings or several by name."""
    if dataclasses.is_dataclass(kind):
        return normalise(cast("type", kind), value, at=at, notices=notices)
    group = group_by_name(kind)
    if group is None or not isinstance(value, dict):
        return value
    return {str(name): normalise(group, inner, at=f"{at}.{name}", notices=notices) for name, inner in value.items()}


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


def build(kind: type[T], tree: dict[str, Any], *, at: str, notices: list[str] | None = None) -> T:
    """Return an instance of a schema class from a normalised tree. Clamp numbers, and say so in ``notices``; raise
    ConfigError for other misfits.

    A class may adjust its instances in a method ``after_build``.
    """
    notices = [] if notices is None else notices
    values: dict[str, Any] = {}
    known = hints(cast("type", kind))
    for spec in dataclasses.fields(kind):  # type: ignore[arg-type]
        if spec.name not in tree:
            continue
        where = f"{at}.{spec.name}" if at else spec.name
        kind_of_value, value = known[spec.name], tree[spec.name]
        if dataclasses.is_dataclass(kind_of_value):
            values[spec.name] = build(cast("type", kind_of_value), value, at=where, notices=notices)
        elif (group := group_by_name(kind_of_value)) and isinstance(value, dict):
            values[spec.name] = {
                str(name): _group(group, inner, f"{where}.{name}", notices) for name, inner in value.items()
            }
        else:
            number = coerce(kind_of_value, value, where)
            values[spec.name] = used = clamp(number, spec.metadata)
            if used != number:
                notices.append(f"{where}: {value} is out of range ({range_text(spec.metadata)}); {used} is used.")
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
    from kept.base.safe_yaml import YamlRefused, load_yaml

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


def _group(kind: Any, value: Any, where: str, notices: list[str] | None = None) -> Any:
    """Return a group of settings. Raise ConfigError if one without a default is missing."""
    if isinstance(value, dict):
        missing = [name for name in _required(kind) if name not in map(snake, map(str, value))]
        if missing:
            raise ConfigError(f"{where}: '{missing[0]}' is missing.")
    if isinstance(value, kind):
        return value
    return build(kind, normalise(kind, value, at=where), at=where, notices=notices)


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


def describe(value: Any, *, hide: bool = False) -> str:
    """Return a value in words for a message; ``hide`` leaves out the text of a scalar."""
    if isinstance(value, dict):
        return "a group of settings"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    return "a single value" if hide else f"'{value}'"

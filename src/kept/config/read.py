"""Reads settings: a YAML file, and from its tree instances of the schema classes.

Nothing about the file is trusted: a pipe in its place would block every command, and 400 bytes of YAML can expand to
gigabytes.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import stat
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast

from kept.config.removed import IGNORED, is_removed
from kept.errors import ConfigError

T = TypeVar("T")

MAX_BYTES = 256_000
_UNCHANGED = "Nothing was changed."
_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")
_MOST_NAMES = 20
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


# fields of the schema classes


def bounded(default: Any, low: float, high: float) -> Any:
    """Return a field for a number that is clamped into its range, with a notice, and not refused outside it."""
    return field(default=default, metadata={"low": low, "high": high})


def secret(default: Any = None) -> Any:
    """Return a field whose value is never shown, not even when the whole configuration is printed."""
    return field(default=default, repr=False, metadata={"secret": True})


hints: Callable[[Any], dict[str, Any]] = cache(typing.get_type_hints)
"""Returns the types of the settings of a schema class by their names."""


def group_by_name(kind: Any) -> Any:
    """Return the class of the groups if users choose their names, as in ``by_channel``; otherwise None."""
    if typing.get_origin(kind) is not dict:
        return None
    item = typing.get_args(kind)[1]
    return item if is_dataclass(item) else None


def settings_of(value: Any, at: str = "") -> Iterator[tuple[str, Any, bool]]:
    """Yield every setting of a schema object: its dotted name, its value, and whether it is secret."""
    for spec in fields(value):
        where = join(at, spec.name)
        inner = getattr(value, spec.name)
        if is_dataclass(inner):
            yield from settings_of(inner, where)
        elif inner and group_by_name(hints(type(value))[spec.name]):
            for name, group in inner.items():
                yield from settings_of(group, f"{where}.{name}")
        else:
            yield where, inner, bool(spec.metadata.get("secret"))


def secret_names(kind: Any) -> Iterator[str]:
    """Yield the names of the secret settings of a schema class, also those in groups that users name."""
    for spec in fields(kind):
        inner = hints(kind)[spec.name]
        inner = group_by_name(inner) or inner
        if is_dataclass(inner):
            yield from secret_names(inner)
        elif spec.metadata.get("secret"):
            yield spec.name


def join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


# the file


def read_settings(path: str, *, max_bytes: int = MAX_BYTES) -> bytes | None:
    """Return the bytes of a settings file, or None if there is none. Never wait for a pipe or a device."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path}: is not a file.", hint=_UNCHANGED)
            raw = file.read(max_bytes + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as exc:  # ValueError: not a path, such as one with a NUL
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise ConfigError(f"{path}: cannot be read ({reason}).", hint=_UNCHANGED) from exc
    if len(raw) > max_bytes:
        raise ConfigError(f"{path}: has more than {max_bytes:,} bytes, too many for settings.", hint=_UNCHANGED)
    return raw


def parse_settings(path: str, raw: bytes | None) -> dict[str, Any]:
    """Return the settings in the bytes of a file. ``path`` is for messages."""
    from kept.base.safe_yaml import YamlRefused, load_yaml

    try:
        text = (raw or b"").decode("utf-8-sig")
        tree = load_yaml(text) if text.strip() else None
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: not UTF-8 at byte {exc.start}.", hint=_UNCHANGED) from exc
    except YamlRefused as exc:
        line = f", line {exc.line}" if exc.line else ""
        hint = exc.hint or "Fix the YAML; nothing was changed."
        raise ConfigError(f"{path}{line}: {exc.problem}.", hint=hint) from exc
    if not isinstance(tree, dict | None):
        raise ConfigError(f"{path}: expected settings by name, such as 'agents:'.")
    return tree or {}


# names


def snake(key: str) -> str:
    return _CAMEL.sub(r"_\1", key).lower().replace("-", "_")


def normalise(kind: Any, tree: Any, *, at: str, notices: list[str]) -> dict[str, Any]:
    """Return a tree with snake_case keys. Raise ConfigError for a key that the schema does not have.

    Those that Kept no longer has are named in ``notices``.
    """
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{at or 'the file'}: expected a group of settings, got {describe(tree)}.")
    known = hints(kind)
    out: dict[str, Any] = {}
    for raw_key, value in tree.items():
        key = snake(str(raw_key))
        where = join(at, key)
        if key in out:
            raise ConfigError(f"{where}: given twice, once in camelCase.")
        if key in known:
            out[key] = normalise_value(known[key], value, at=where, notices=notices)
        elif is_removed(where):
            notices.append(f"{where}: {IGNORED}")
        else:
            raise unknown_key(where, str(raw_key), list(known))
    return out


def normalise_value(kind: Any, value: Any, *, at: str, notices: list[str]) -> Any:
    """Return the value of a setting, with snake_case keys if it is a group of settings or several by name."""
    if is_dataclass(kind):
        return normalise(kind, value, at=at, notices=notices)
    group = group_by_name(kind)
    if group is None or not isinstance(value, dict):
        return value
    return {str(name): normalise(group, inner, at=f"{at}.{name}", notices=notices) for name, inner in value.items()}


def unknown_key(where: str, key: str, known: list[str]) -> ConfigError:
    return ConfigError(f"{where}: there is no such setting.", hint=nearest(snake(key), known))


def nearest(name: str, known: list[str]) -> str:
    """Return a hint with the closest known name, or with all of them if none is close and they are few."""
    import difflib  # only for a mistake

    if near := difflib.get_close_matches(name, known, n=1, cutoff=0.6):
        return f"Did you mean '{near[0]}'?"
    if not 0 < len(known) <= _MOST_NAMES:
        return "'kept config explain' lists all settings."
    return f"Known here: {', '.join(sorted(known))}."


# values


def build(kind: type[T], tree: dict[str, Any], *, at: str, notices: list[str]) -> T:
    """Return an instance of a schema class from a normalised tree. Clamp numbers, and say so in ``notices``; raise
    ConfigError for other misfits.

    A class may adjust its instances in a method ``after_build``.
    """
    values: dict[str, Any] = {}
    known = hints(kind)
    for spec in fields(cast("Any", kind)):
        if spec.name not in tree:
            continue
        where, value = join(at, spec.name), tree[spec.name]
        values[spec.name] = used = coerce(known[spec.name], value, where, notices=notices)
        if "low" in spec.metadata:
            values[spec.name] = clamp(used, spec.metadata)
            if values[spec.name] != used:
                limits = range_text(spec.metadata)
                notices.append(f"{where}: {value} is out of range ({limits}); {values[spec.name]} is used.")
    settings = kind(**values)
    after_build: Any = getattr(settings, "after_build", None)
    return cast("T", after_build()) if after_build else settings


def coerce(kind: Any, value: Any, where: str, *, notices: list[str]) -> Any:
    """Return a value as the type of its setting, or raise ConfigError."""
    origin = typing.get_origin(kind)
    if is_dataclass(kind):
        return _group(kind, value, where, notices)
    if origin is Literal:
        return _choice(typing.get_args(kind), value, where)
    if origin in (Union, types.UnionType):
        return _any_of(typing.get_args(kind), value, where, notices)
    if origin is tuple:
        return _list_of(typing.get_args(kind)[0], value, where, notices)
    if origin is dict:
        return _mapping(typing.get_args(kind)[1], value, where, notices)
    return _scalar(kind, value, where)


def read_flow(kind: Any, value: Any, where: str) -> Any:
    """Return what a text such as `{a: b}` or `[a, b]` says, as people type a mapping or a list; else the value."""
    fits = typing.get_origin(kind) in (tuple, dict) or is_dataclass(kind)
    if not fits or not isinstance(value, str) or value[:1] not in ("[", "{"):
        return value
    from kept.base.safe_yaml import YamlRefused, load_yaml

    try:
        return load_yaml(value)
    except YamlRefused as exc:
        raise ConfigError(f"{where}: {exc.problem}.", hint=_UNCHANGED) from exc


def _choice(allowed: tuple[Any, ...], value: Any, where: str) -> Any:
    if isinstance(value, str) and snake(value) in allowed:
        return snake(value)
    # YAML reads a bare `none` as text, but an unquoted null as None.
    if value is None and "none" in allowed:
        return "none"
    raise ConfigError(
        f"{where}: {describe(value)} is not one of the choices.",
        hint=f"Choose one of: {', '.join(map(str, allowed))}.",
    )


def _any_of(options: tuple[Any, ...], value: Any, where: str, notices: list[str]) -> Any:
    if value is None and type(None) in options:
        return None
    error: ConfigError | None = None
    for option in options:
        if option is type(None):
            continue
        try:
            return coerce(option, value, where, notices=notices)
        except ConfigError as exc:
            error = error or exc
    assert error is not None
    raise error


def _list_of(item: Any, value: Any, where: str, notices: list[str]) -> tuple[Any, ...]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{where}: expected a list, got {describe(value)}.")
    return tuple(coerce(item, element, f"{where}[{at}]", notices=notices) for at, element in enumerate(value))


def _mapping(item: Any, value: Any, where: str, notices: list[str]) -> dict[str, Any]:
    """Return names that the user chose, each with a text or a group of settings."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        # The value is not shown: headers carry keys.
        raise ConfigError(f"{where}: expected names and values, got {describe(value, hide=True)}.")
    if item is str:
        return {str(key): str(text) for key, text in value.items()}
    return {str(key): coerce(item, inner, f"{where}.{key}", notices=notices) for key, inner in value.items()}


def _group(kind: Any, value: Any, where: str, notices: list[str]) -> Any:
    """Return a group of settings. Raise ConfigError if one without a default is missing."""
    tree = normalise(kind, value, at=where, notices=notices)
    for spec in fields(kind):
        if spec.default is spec.default_factory is dataclasses.MISSING and spec.name not in tree:
            raise ConfigError(f"{where}: '{spec.name}' is missing.")
    return build(kind, tree, at=where, notices=notices)


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
        expected = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{where}: expected {expected}, got {describe(value)}.")
    return int(number) if kind is int else number


def clamp(value: Any, bounds: Mapping[str, Any]) -> Any:
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

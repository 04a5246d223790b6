"""Reads the values of settings as the types that the schema classes give them, and knows the fields of these."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union

from kept.errors import ConfigError

_UNCHANGED = "Nothing was changed."
_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")
_MOST_NAMES = 20
_UNBOUNDED: Mapping[str, Any] = {}
IGNORED = frozenset(
    """
    compaction.prune_tool_results context gateway.ack_reaction gateway.auto_responder.max_queued_per_conversation
    gateway.auto_responder.memory_fts_enabled gateway.discord.ack_reaction gateway.discord.stream
    gateway.http.allowed_hosts gateway.http.max_body_bytes gateway.lease_seconds gateway.max_attachment_bytes
    gateway.mcp gateway.serve.address_burst gateway.serve.drain_s gateway.serve.ready_timeout_s
    gateway.serve.token_burst gateway.serve.token_grace_s gateway.shutdown_timeout_s gateway.stream
    gateway.telegram.ack_reaction gateway.telegram.poll_timeout_s gateway.telegram.stream gateway.tracing_endpoint
    gateway.web.allowed_hosts gateway.web.remote_images heartbeat.active_hours heartbeat.timezone history.by_hand
    history.git history.max_age_days history.max_bytes memory_search.experimental memory_search.local.mirror_url
    memory_search.local.model_cache_dir memory_search.qmd.cooldown_s memory_search.qmd.timeout_ms
    memory_search.query.hybrid.fusion memory_search.query.hybrid.match memory_search.query.rerank.budget_ms
    memory_search.query.rerank.top memory_search.query.rerank.weight memory_search.query.top_k
    memory_search.store.driver memory_search.store.max_connections memory_search.store.replica
    memory_search.store.schema memory_search.store.url memory_search.store.url_file
    memory_search.store.vector.extension_path memory_search.store.workspace
    model.background review.max_waiting schedules sync tools.ask_timeout_s tools.max_result_chars
    """.split()
)
"""Settings of earlier builds and of OpenClaw that Kept does not have. A file with them opens, with a notice."""
REMOVED_TOKENS = frozenset(("gateway.http.token", "gateway.http.user_tokens", "gateway.web.token"))
_PLACE = re.compile(r"^agents\.(defaults|list\[\d+\])\.")
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


# names


def snake(key: str) -> str:
    return _CAMEL.sub(r"_\1", key).lower().replace("-", "_")


def nearest(name: str, known: list[str]) -> str:
    """Return a hint with the closest known name, or with all of them if none is close and they are few."""
    import difflib  # only for a mistake

    if near := difflib.get_close_matches(name, known, n=1, cutoff=0.6):
        return f"Did you mean '{near[0]}'?"
    if not 0 < len(known) <= _MOST_NAMES:
        return "'kept config explain' lists all settings."
    return f"Known here: {', '.join(sorted(known))}."


# values


class SettingGroup(dict[str, Any]):
    """Settings of a group by their names, as far as one layer has them. A later layer overrides them one by one."""


def read_group(kind: Any, tree: Any, *, at: str, notices: list[str]) -> SettingGroup:
    """Return the settings of a group, each as its type. ``kind`` is the schema class.

    Clamp numbers, and say so in ``notices``. Raise ConfigError for other misfits and for unknown names.
    """
    if not isinstance(tree, dict | None):
        raise ConfigError(f"{at or 'the file'}: expected a group of settings, got {describe(tree)}.")
    known = hints(kind)
    values = SettingGroup()
    for raw_key, value in (tree or {}).items():
        key = snake(str(raw_key))
        where = join(at, key)
        if key in values:
            raise ConfigError(f"{where}: given twice, once in camelCase.")
        if (_PLACE.sub("", where), value) == ("review.agent_writes", "listed"):
            notices.append(
                f"{where}: Kept no longer has 'listed'; agents write at once, and 'kept undo' takes it back."
            )
        elif key in known:
            values[key] = read_value(known[key], value, where, notices, kind.__dataclass_fields__[key].metadata)
        elif notice := _why_ignored(_PLACE.sub("", where)):
            notices.append(f"{where}: {notice}")
        else:
            raise ConfigError(f"{where}: there is no such setting.", hint=nearest(key, list(known)))
    for spec in fields(kind):
        if spec.default is spec.default_factory is dataclasses.MISSING and spec.name not in values:
            raise ConfigError(f"{at}: '{spec.name}' is missing.")
    return values


def _why_ignored(name: str) -> str:
    """Return the notice about a setting that is ignored, or nothing for one that is unknown."""
    if name in REMOVED_TOKENS:  # whoever relied on it must hear that nothing is locked
        return (
            "Kept no longer has this setting; it is ignored. Until 'kept token create' makes one, Kept lets in every"
            " program of this machine."
        )
    return "Kept does not have this setting; it is ignored." if name in IGNORED else ""


def read_value(kind: Any, value: Any, where: str, notices: list[str], bounds: Mapping[str, Any] = _UNBOUNDED) -> Any:
    """Return a value as the type of its setting, or raise ConfigError. The settings of a group stay a `SettingGroup`.

    Text such as `{a: b}` or `[a, b]` is read as people type a mapping or a list.
    """
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(value, str) and value[:1] in ("[", "{") and (origin in (tuple, dict) or is_dataclass(kind)):
        value = _read_flow(value, where)
    if is_dataclass(kind):
        return read_group(kind, value, at=where, notices=notices)
    if origin is Literal:
        return _choice(args, value, where)
    if origin in (Union, types.UnionType):
        *others, last = (option for option in args if option is not type(None))
        if value is None and type(None) in args:
            return None
        for option in others:
            with suppress(ConfigError):
                return read_value(option, value, where, notices, bounds)
        return read_value(last, value, where, notices, bounds)
    if origin is tuple:
        return _list_of(args[0], value, where, notices)
    if origin is dict:
        return _mapping(args[1], value, where, notices)
    return _number(kind, value, where, notices, bounds) if kind in (int, float) else _scalar(kind, value, where)


def _read_flow(text: str, where: str) -> Any:
    from kept.base.safe_yaml import YamlRefused, load_yaml

    try:
        return load_yaml(text)
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


def _list_of(item: Any, value: Any, where: str, notices: list[str]) -> tuple[Any, ...]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{where}: expected a list, got {describe(value)}.")
    return tuple(read_value(item, element, f"{where}[{at}]", notices) for at, element in enumerate(value))


def _mapping(item: Any, value: Any, where: str, notices: list[str]) -> dict[str, Any]:
    """Return names that the user chose, each with a text or a group of settings."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        # The value is not shown: headers carry keys.
        raise ConfigError(f"{where}: expected names and values, got {describe(value, hide=True)}.")
    if item is str:
        return {str(key): str(text) for key, text in value.items()}
    values = ((str(key), read_value(item, inner, f"{where}.{key}", notices)) for key, inner in value.items())
    return SettingGroup(values) if is_dataclass(item) else dict(values)


def _scalar(kind: type, value: Any, where: str) -> Any:
    if kind is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in _WORDS:
            return _WORDS[value.lower()]
        raise ConfigError(f"{where}: expected true or false, got {describe(value)}.")
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise ConfigError(f"{where}: expected text, got {describe(value)}.")


def _number(kind: Any, value: Any, where: str, notices: list[str], bounds: Mapping[str, Any]) -> int | float:
    """Return a value as a number in its range. Say so in ``notices`` if it was outside."""
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or (kind is int and number != int(number)):
        expected = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{where}: expected {expected}, got {describe(value)}.")
    low, high = bounds.get("low", -math.inf), bounds.get("high", math.inf)
    if not low <= number <= high:
        number = min(max(number, low), high)
        notices.append(f"{where}: {value} is out of range ({low:,} to {high:,}); {kind(number)} is used.")
    return kind(number)  # type: ignore[no-any-return]


def describe(value: Any, *, hide: bool = False) -> str:
    """Return a value in words for a message; ``hide`` leaves out the text of a scalar."""
    if isinstance(value, dict):
        return "a group of settings"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    return "a single value" if hide else f"'{value}'"

"""Frozen values as JSON, and back: how records are stored.

A field that has its default is left out. What is read is checked against the types of the fields: texts are valid
UTF-8, whole numbers fit a column, times have an offset and are in range. Fields that a class does not have are ignored.
Bytes are written in base64.
"""

from __future__ import annotations

import datetime as dt
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from kept.base.limits import INT64_MAX, is_time, is_utf8

T = TypeVar("T")


@cache
def type_hints(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a class, which may name those of `datetime` without importing it."""
    return get_type_hints(kind, localns={"dt": dt})


def to_tree(value: Any) -> Any:
    """Return a value as a tree of JSON."""
    if is_dataclass(value):
        values = ((spec, getattr(value, spec.name)) for spec in fields(value))
        return {spec.name: to_tree(inner) for spec, inner in values if inner != spec.default}
    if isinstance(value, list | tuple):
        return [to_tree(item) for item in value]
    if isinstance(value, dict):
        return {name: to_tree(inner) for name, inner in value.items()}
    if isinstance(value, bytes):
        return b2a_base64(value, newline=False).decode()
    return value.isoformat() if isinstance(value, dt.datetime) else value


def from_tree(kind: type[T], tree: Any) -> T:
    """Return the value of a class that a tree describes. Raise ValueError for a tree that describes none."""
    hints = type_hints(cast("Any", kind))
    if not isinstance(tree, dict):
        raise ValueError("not an object")
    values = {name: read_value(hint, tree[name]) for name, hint in hints.items() if name in tree}
    try:
        return kind(**values)
    except TypeError:
        raise ValueError("a field is missing") from None


def _read_time(text: str) -> dt.datetime:
    moment = dt.datetime.fromisoformat(text)
    if not is_time(moment):
        raise ValueError(f"{text:.40} has no offset, or is out of range")
    return moment


_FROM_TEXT: dict[Any, Callable[[str], Any]] = {
    dt.datetime: _read_time,
    bytes: lambda text: a2b_base64(text, strict_mode=True),
}


def read_value(hint: Any, tree: Any) -> Any:
    """Return a tree as a value of a type. Raise ValueError."""
    if hint is Any:
        return tree
    if is_dataclass(hint):
        return from_tree(hint, tree)  # type: ignore[arg-type]
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple and isinstance(tree, list):
        return tuple(read_value(args[0], item) for item in tree)
    if origin is dict and isinstance(tree, dict):
        return {name: read_value(args[1], inner) for name, inner in tree.items()}
    if origin is Literal and isinstance(tree, str) and tree in args:
        return tree
    if type(None) in args:
        return None if tree is None else read_value(args[0], tree)
    if hint in _FROM_TEXT and isinstance(tree, str):
        return _FROM_TEXT[hint](tree)
    if type(tree) is hint and (hint is not str or is_utf8(tree)) and (hint is not int or abs(tree) <= INT64_MAX):
        return tree
    raise ValueError(f"{tree!r:.40} is not of the right type")

"""Finds numbers outside their range. They are clamped, and the user should know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from kept.config.read import clamp, coerce, group_by_name, hints


def notices_of(kind: Any, tree: Mapping[str, Any], origins: Mapping[str, str], *, at: str) -> Iterator[str]:
    """Yield a notice for each number of a checked tree that is outside its range."""
    for name, value, used, bounds in _outside(kind, tree, at=at):
        origin = f" ({origins[name]})" if name in origins else ""
        yield f"{name}: {value} is out of range ({range_text(bounds)}); {used} is used{origin}."


def find_outside(kind: Any, tree: Mapping[str, Any], *, at: str) -> str | None:
    """Return what is wrong with the first number outside its range, or None."""
    for name, value, _, bounds in _outside(kind, tree, at=at):
        return f"{name}: {value} is out of range ({range_text(bounds)})."
    return None


def range_text(bounds: Mapping[str, Any]) -> str:
    return f"{bounds['low']:,} to {bounds['high']:,}"


def _outside(kind: Any, tree: Mapping[str, Any], *, at: str) -> Iterator[tuple[str, Any, Any, Mapping[str, Any]]]:
    """Yield name, value, value that is used, and bounds. Look only at what the tree has: a few settings."""
    for spec in fields(kind):
        if spec.name not in tree:
            continue
        name = f"{at}.{spec.name}" if at else spec.name
        inner, value = hints(kind)[spec.name], tree[spec.name]
        if is_dataclass(inner):
            yield from _outside(inner, value, at=name)
        elif group := group_by_name(inner):
            for key, settings in (value or {}).items():
                yield from _outside(group, settings, at=f"{name}.{key}")
        elif "low" in spec.metadata:
            number = coerce(inner, value, name)
            used = clamp(number, spec.metadata)
            if used != number:
                yield name, value, used, spec.metadata

"""Every way in which one record can be wrong: fields that are missing or cannot be true, and flipped bits."""

import copy
import json
from collections.abc import Iterator
from typing import Any

BAD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**19,
    -(10**19),
    10**400,
    1.5,
    float("nan"),
    float("-inf"),
    "",
    "text",
    "half a pair \ud83d",
    "\0",
    "9999-12-31T23:59:59-12:00",
    "0001-01-01T00:00:00+14:00",
    "2026-03-14T15:09:26",
    [],
    [[1]],
    {},
    {"\udcff": 10**19},
)
NESTED = b"[" * 300 + b"]" * 300
OVERFLOWING = b"1e999"


def wrong_fields(record: dict[str, Any]) -> Iterator[bytes]:
    """The record with one field gone, or of another value; fields inside of fields included."""
    for path in _paths(record):
        gone = copy.deepcopy(record)
        del _inside(gone, path)[path[-1]]
        yield _dump(gone)
        for value in BAD_VALUES:
            changed = copy.deepcopy(record)
            _inside(changed, path)[path[-1]] = value
            yield _dump(changed)
        for raw in (NESTED, OVERFLOWING):
            changed = copy.deepcopy(record)
            _inside(changed, path)[path[-1]] = "@raw@"
            yield _dump(changed).replace(b'"@raw@"', raw)


def flipped_bits(line: bytes, every: int = 1) -> Iterator[bytes]:
    """The line with one bit flipped. Where that makes a line break, it is two lines, as it would be on disk."""
    for bit in range(0, len(line) * 8, every):
        flipped = bytearray(line)
        flipped[bit // 8] ^= 1 << (bit % 8)
        yield bytes(flipped)


def _dump(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def _paths(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, value in items:
        yield (*at, name)
        yield from _paths(value, (*at, name))


def _inside(tree: Any, path: tuple[Any, ...]) -> Any:
    for name in path[:-1]:
        tree = tree[name]
    return tree

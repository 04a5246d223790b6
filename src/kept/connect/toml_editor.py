"""Changing one table of a TOML file and no other byte of it. Every result is parsed again and compared before it is
returned."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from kept.errors import ConfigError

_HEADER = re.compile(r"^[ \t]*\[")
_MAX_KEY_PARTS = 50
_LONG_KEY = re.compile(rf"""(?<![\w"'-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{_MAX_KEY_PARTS}}}""")
"""A dotted key of many parts. tomllib takes quadratic time for it."""


def set_table(path: str, text: str, keys: tuple[str, str], entry: dict[str, Any]) -> str:
    """Return the text with this entry as a table. Other keys of a table that is there already are kept."""
    before = _read(path, text)
    group, name = keys
    tables = before.get(group, {})
    old = tables.get(name) if isinstance(tables, dict) else None
    if not isinstance(tables, dict) or not isinstance(old, dict | None):
        raise _edit_by_hand(path, f"'{group}' is not a table")
    merged = {**(old or {}), **entry}
    if merged == old:
        return text
    expected = {**before, group: {**tables, name: merged}}
    # A nested table has its own header, which stays, or is written inline: one of the two reads as expected.
    for has_headers in (True, False):
        lines = {key: value for key, value in merged.items() if not (has_headers and isinstance(value, dict))}
        edited = _put(text, keys, _table(keys, lines), is_new=old is None)
        if edited is not None and _reads_as(edited, expected):
            return edited
    raise _edit_by_hand(path, f"{group}.{name} cannot be changed without touching the rest")


def remove_table(path: str, text: str, keys: tuple[str, str]) -> str:
    """Return the text without the table and its nested tables."""
    before = _read(path, text)
    group, name = keys
    tables = before.get(group, {})
    if not isinstance(tables, dict) or name not in tables:
        return text
    expected = {**before, group: {key: value for key, value in before[group].items() if key != name}}
    lines = text.splitlines(keepends=True)
    while (span := _span(lines, keys, nested=True)) is not None:
        start, end = _own_lines(lines, *span)
        head = lines[:start]
        if head and not head[-1].strip():
            head.pop()  # the empty line that `set_table` put before it
        lines = head + lines[end:]
    edited = "".join(lines)
    without_group = {key: value for key, value in expected.items() if value or key != group}
    if not (_reads_as(edited, expected) or _reads_as(edited, without_group)):
        raise _edit_by_hand(path, f"{group}.{name} cannot be removed without touching the rest")
    return edited


def _read(path: str, text: str) -> dict[str, Any]:
    if _LONG_KEY.search(text):
        raise _edit_by_hand(path, f"a key has more than {_MAX_KEY_PARTS} parts")
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as exc:  # ValueError: also a number of thousands of digits
        raise ConfigError(
            f"{path}: not valid TOML ({exc}).",
            hint="Nothing was changed. Correct the file, or see 'kept connect print'.",
        ) from exc


def _reads_as(text: str, expected: dict[str, Any]) -> bool:
    try:
        return tomllib.loads(text.removeprefix("\ufeff")) == expected
    except (ValueError, RecursionError):
        return False


def _edit_by_hand(path: str, reason: str) -> ConfigError:
    hint = "Nothing was changed. Add the entry that 'kept connect print' shows by hand."
    return ConfigError(f"{path}: {reason}.", hint=hint)


def _put(text: str, keys: tuple[str, str], table: list[str], *, is_new: bool) -> str | None:
    """Append the table, or replace the one with this header. Return None if there is no such header."""
    newline = "\r\n" if "\r\n" in text else "\n"
    block = newline.join(table) + newline
    if is_new:
        separator = "" if not text.strip("\ufeff \t\r\n") else newline if text.endswith("\n") else newline * 2
        return text + separator + block
    lines = text.splitlines(keepends=True)
    span = _span(lines, keys, nested=False)
    if span is None:
        return None
    start, end = _own_lines(lines, *span)
    return "".join(lines[:start]) + block + "".join(lines[end:])


def _span(lines: list[str], keys: tuple[str, str], *, nested: bool) -> tuple[int, int] | None:
    """Return the first and the end line of a table with its header, or of a nested table too."""
    group, name = (rf"(?:{re.escape(key)}|\"{re.escape(key)}\"|'{re.escape(key)}')" for key in keys)
    below = r"(?:\s*\.[^\]]*)?" if nested else r"\s*"
    header = re.compile(rf"^[ \t]*\[\s*{group}\s*\.\s*{name}{below}\]")
    start = next((number for number, line in enumerate(lines) if header.match(line)), None)
    if start is None:
        return None
    after = range(start + 1, len(lines))
    return start, next((number for number in after if _HEADER.match(lines[number])), len(lines))


def _own_lines(lines: list[str], start: int, end: int) -> tuple[int, int]:
    """Return the span without the comments and empty lines at its end, which belong to the next table."""
    while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
        end -= 1
    return start, end


def _table(keys: tuple[str, str], entry: dict[str, Any]) -> list[str]:
    return [f"[{'.'.join(keys)}]", *(f"{_key(key)} = {_value(value)}" for key, value in entry.items())]


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _value(value: Any) -> str:
    match value:
        case dict():
            return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
        case list():
            return "[" + ", ".join(_value(item) for item in value) + "]"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case bool():
            return str(value).lower()
        case _:
            return str(value)

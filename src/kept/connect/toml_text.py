"""Changing one table of a TOML file and no other byte of it. Whatever comes out is read again before it is believed."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from kept.errors import ConfigError

_HEADER = re.compile(r"^[ \t]*\[")
_MAX_KEY_PARTS = 50
_LONG_KEY = re.compile(rf"""(?<![\w"'-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{_MAX_KEY_PARTS}}}""")
"""The library takes quadratic time to read a dotted key."""


def set_table(path: str, text: str, keys: tuple[str, str], entry: dict[str, Any]) -> str:
    """The text with this entry as a table. What else a table there says is kept."""
    before = _read(path, text)
    group, name = keys
    there = before.get(group, {})
    old = there.get(name) if isinstance(there, dict) else None
    if not isinstance(there, dict) or not isinstance(old, dict | None):
        raise _by_hand(path, f"'{group}' is not a table")
    merged = {**(old or {}), **entry}
    if merged == old:
        return text
    wanted = {**before, group: {**there, name: merged}}
    for flat in (True, False):
        shown = {key: value for key, value in merged.items() if not (flat and isinstance(value, dict))}
        made = _put(text, keys, _table(keys, shown), is_new=old is None)
        if made is not None and _reads_as(made, wanted):
            return made
    raise _by_hand(path, f"{group}.{name} is written in a way that cannot be changed without touching the rest")


def remove_table(path: str, text: str, keys: tuple[str, str]) -> str:
    """Without the table and those below it."""
    before = _read(path, text)
    group, name = keys
    there = before.get(group, {})
    if not isinstance(there, dict) or name not in there:
        return text
    wanted = {**before, group: {key: value for key, value in before[group].items() if key != name}}
    lines = text.splitlines(keepends=True)
    kept: list[str] = []
    while (span := _span(lines, keys, nested=True)) is not None:
        start, end = _own_lines(lines, *span)
        kept = lines[:start]
        if kept and not kept[-1].strip():
            kept.pop()  # the empty line that was put before it
        lines = kept + lines[end:]
    made = "".join(lines)
    if not (_reads_as(made, wanted) or _reads_as(made, {k: v for k, v in wanted.items() if v or k != group})):
        raise _by_hand(path, f"{group}.{name} cannot be taken out without touching the rest")
    return made


def _read(path: str, text: str) -> dict[str, Any]:
    if _LONG_KEY.search(text):
        raise _by_hand(path, f"a key has more than {_MAX_KEY_PARTS} parts")
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as exc:  # ValueError: also a number of thousands of digits
        raise ConfigError(
            f"{path}: not valid TOML ({exc}).",
            hint="Nothing was changed. Correct the file, or see 'kept connect print'.",
        ) from exc


def _reads_as(text: str, wanted: dict[str, Any]) -> bool:
    try:
        return tomllib.loads(text.removeprefix("\ufeff")) == wanted
    except (ValueError, RecursionError):
        return False


def _by_hand(path: str, why: str) -> ConfigError:
    return ConfigError(f"{path}: {why}.", hint="Nothing was changed. Add what 'kept connect print' shows by hand.")


def _put(text: str, keys: tuple[str, str], table: list[str], *, is_new: bool) -> str | None:
    newline = "\r\n" if "\r\n" in text else "\n"
    made = newline.join(table) + newline
    if is_new:
        lead = "" if not text.strip("\ufeff \t\r\n") else newline if text.endswith("\n") else newline * 2
        return text + lead + made
    lines = text.splitlines(keepends=True)
    span = _span(lines, keys, nested=False)
    if span is None:
        return None
    start, end = _own_lines(lines, *span)
    return "".join(lines[:start]) + made + "".join(lines[end:])


def _span(lines: list[str], keys: tuple[str, str], *, nested: bool) -> tuple[int, int] | None:
    """The lines of a table, its header among them."""
    group, name = (rf"(?:{re.escape(key)}|\"{re.escape(key)}\"|'{re.escape(key)}')" for key in keys)
    below = r"(?:\s*\.[^\]]*)?" if nested else r"\s*"
    header = re.compile(rf"^[ \t]*\[\s*{group}\s*\.\s*{name}{below}\]")
    start = next((number for number, line in enumerate(lines) if header.match(line)), None)
    if start is None:
        return None
    after = range(start + 1, len(lines))
    return start, next((number for number in after if _HEADER.match(lines[number])), len(lines))


def _own_lines(lines: list[str], start: int, end: int) -> tuple[int, int]:
    """Without the comments and empty lines before the next table, which belong to that."""
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
            return "{ " + ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items()) + " }"
        case list():
            return "[" + ", ".join(_value(one) for one in value) + "]"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case bool():
            return str(value).lower()
        case _:
            return str(value)

"""Changing one entry of a settings file, JSON or TOML, and no other byte of it: comments, order and layout stay.

Every result is parsed again and compared before it is returned. A file that cannot be changed this way is refused.
JSON may have comments and trailing commas. They are blanked before it is parsed, so that positions stay.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from kept.errors import ConfigError

_EMPTY = "\ufeff \t\r\n"
_STRING = r'"(?:[^"\\]|\\.)*+"'
_COMMENTS = re.compile(rf"{_STRING}|//[^\n\r]*|/\*.*?\*/|\ufeff", re.DOTALL)
_TRAILING_COMMAS = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_HEADER = re.compile(r"^[ \t]*\[")
_MAX_KEY_PARTS = 50
_LONG_KEY = re.compile(rf"""(?<![\w"'-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{_MAX_KEY_PARTS}}}""")
"""A dotted key of many parts. tomllib takes quadratic time for it."""


def _refuse(path: str, reason: str) -> ConfigError:
    hint = "Nothing was changed. Correct the file, or add what 'kept connect print' shows by hand."
    return ConfigError(f"{path}: {reason}.", hint=hint)


# JSON


def edit_json(path: str, text: str, keys: tuple[str, ...], entry: Any) -> str:
    """Return the text with this entry below these keys, or without one if it is None. Other members of an object that
    is there already are kept, and an object that has nothing else stays, empty."""
    is_empty = not text.strip(_EMPTY)
    expected = {} if is_empty else parse_json(path, text)
    group, name = _descend(path, expected, keys[:-1]), keys[-1]
    has_entry, old = name in group, group.pop(name, None)
    if entry is None and not has_entry:
        return text
    edited = _without_member(text, keys) if has_entry else text
    if entry is not None:
        group[name] = value = {**old, **entry} if isinstance(old, dict) and isinstance(entry, dict) else entry
        if has_entry and old == value:
            return text
        edited = json.dumps(expected, indent=2) + "\n" if is_empty else _add_member(edited, keys, value)
    if parse_json(path, edited) != expected:
        raise _refuse(path, "it cannot be changed without touching the rest")
    return edited


def _without_member(text: str, keys: tuple[str, ...]) -> str:
    blank, at = _blank(text), 0
    for key in keys:
        start, at, end = _members(blank, at)[key]
    head, rest, with_commas = text[:start], text[end:], _blank_comments(text)
    if comma := re.compile(r"\s*,").match(with_commas, end):
        rest = text[end : comma.end() - 1] + text[comma.end() :].lstrip(" \t")
    elif with_commas[:start].rstrip().endswith(","):
        before = with_commas.rindex(",", 0, start)
        head = text[:before] + text[before + 1 : start].rstrip(" \t")
    if head.rstrip(" \t").endswith("\n") and re.match(r"[ \t]*\r?\n", rest):  # lines that held only the entry
        head = head.rstrip(" \t").removesuffix("\n").removesuffix("\r")
    return head + rest


def parse_json(path: str, text: str) -> Any:
    try:
        return json.loads(_blank(text))
    except RecursionError:
        raise _refuse(path, "it is nested too deeply") from None
    except ValueError as exc:
        raise _refuse(path, f"not valid JSON ({exc})") from exc


def _blank_comments(text: str) -> str:
    return _COMMENTS.sub(lambda match: match[0] if match[0][0] == '"' else re.sub(r"[^\n\r]", " ", match[0]), text)


def _blank(text: str) -> str:
    return _TRAILING_COMMAS.sub(lambda match: match[0] if match[0][0] == '"' else " ", _blank_comments(text))


def _descend(path: str, tree: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    """Return the object below these keys. Objects that are missing are added to the tree."""
    for key in (None, *keys):
        tree = tree if key is None else tree.setdefault(key, {})
        if not isinstance(tree, dict):
            raise _refuse(path, f"'{key or 'the file'}' is not an object")
    group: dict[str, Any] = tree
    return group


def _members(blank: str, at: int) -> dict[str, tuple[int, int, int]]:
    """Return where each member of the object at or after a position begins, where its value does, and where it ends."""
    decode, members = json.JSONDecoder().raw_decode, {}
    at = _skip(blank, blank.index("{", at) + 1)
    while blank[at] != "}":
        name, name_end = decode(blank, at)
        value_start = _skip(blank, name_end)
        end = decode(blank, value_start)[1]
        members[name] = at, value_start, end
        at = _skip(blank, end)
    return members


def _skip(blank: str, at: int) -> int:
    while blank[at] in " \t\r\n:,":
        at += 1
    return at


def _add_member(text: str, keys: tuple[str, ...], value: Any) -> str:
    """Add a value below these keys, in a line of its own if the last object that exists has such."""
    blank, at, (key, *rest) = _blank(text), 0, keys
    members = _members(blank, at)
    while rest and key in members:
        at, (key, *rest) = members[key][1], rest
        members = _members(blank, at)
    for inner in reversed(rest):
        value = {inner: value}
    added = f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
    begin = blank.index("{", at) + 1
    gap = text[begin : _skip(text, begin)]
    if members and "\n" not in gap:
        end = max(end for _, _, end in members.values())
        return f"{text[:end]}, {added}{text[end:]}"
    return text[:begin] + (f"{gap}{added}," if members else added) + text[begin:]


# TOML


def edit_toml(path: str, text: str, keys: tuple[str, ...], entry: dict[str, Any] | None) -> str:
    """Return the text with this entry as its last table, or without its table and nested ones if it is None. Other keys
    of a table that is there already are kept."""
    before = _parse_toml(path, text)
    group, name = keys
    tables = before.get(group, {})
    old = tables.get(name) if isinstance(tables, dict) else None
    if entry is None and old is None:
        return text
    if not isinstance(tables, dict) or not isinstance(old, dict | None):
        raise _refuse(path, f"'{group}' is not a table")
    edited = _without_table(text, keys)
    if entry is None:
        del tables[name]
        if not tables and group not in _parse_toml(path, edited):
            del before[group]
    else:
        merged = (old or {}) | entry
        if merged == old:
            return text
        before[group] = {**tables, name: merged}
        newline = "\r\n" if "\r\n" in text else "\n"
        lines = [f"[{group}.{name}]", *(f"{_toml_key(key)} = {_toml_value(value)}" for key, value in merged.items())]
        separator = "" if not edited.strip(_EMPTY) else newline if edited.endswith("\n") else newline * 2
        edited += separator + newline.join(lines) + newline
    if _parse_toml(path, edited) != before:
        raise _refuse(path, "it cannot be changed without touching the rest")
    return edited


def _parse_toml(path: str, text: str) -> dict[str, Any]:
    if _LONG_KEY.search(text):
        raise _refuse(path, f"a key has more than {_MAX_KEY_PARTS} parts")
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as exc:  # ValueError: also a number of thousands of digits
        raise _refuse(path, f"not valid TOML ({exc})") from exc


def _without_table(text: str, keys: tuple[str, ...]) -> str:
    """Return the text without the lines of a table, its nested tables, and the empty line before each. Comments at the
    end of a table belong to the next one and stay."""
    group, name = (rf"(?:{re.escape(key)}|\"{re.escape(key)}\"|'{re.escape(key)}')" for key in keys)
    header = re.compile(rf"^[ \t]*\[\s*{group}\s*\.\s*{name}(?:\s*\.[^\]]*)?\s*\]")
    lines = text.splitlines(keepends=True)
    while (start := next((number for number, line in enumerate(lines) if header.match(line)), None)) is not None:
        end = next((at for at in range(start + 1, len(lines)) if _HEADER.match(lines[at])), len(lines))
        while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
            end -= 1
        if start and not lines[start - 1].strip():
            start -= 1
        del lines[start:end]
    return "".join(lines)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _toml_value(value: Any) -> str:
    match value:
        case dict():
            return "{ " + ", ".join(f"{_toml_key(key)} = {_toml_value(item)}" for key, item in value.items()) + " }"
        case list():
            return "[" + ", ".join(map(_toml_value, value)) + "]"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case _:
            return str(value).lower() if isinstance(value, bool) else str(value)

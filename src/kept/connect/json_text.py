"""Changing one entry of a JSON file and no other byte of it: comments, order and layout stay as they are."""

from __future__ import annotations

import json
import re
from typing import Any

from kept.connect.json_tree import COMMENT, JsonSyntaxError, Node, as_read, parse, read_at
from kept.errors import ConfigError


def set_entry(text: str, path: tuple[str, ...], entry: Any, dialect: str) -> str:
    """The text with this entry at that place. What else an object there says is kept."""
    text = text if text.strip("\ufeff \t\r\n") else "{}\n"
    node, depth = _deepest(parse(text, dialect), path)
    rest = path[depth:]
    if rest:
        value = entry
        for key in reversed(rest[1:]):
            value = {key: value}
        return _insert(text, node, rest[0], value)
    if isinstance(entry, dict) and node.members is not None:
        return _replace_members(text, node, entry)
    return _replace(text, node, entry)


def remove_entry(text: str, path: tuple[str, ...], dialect: str) -> str:
    """The text without that entry. Comments around it are somebody's, and stay."""
    node, depth = _deepest(parse(text, dialect), path[:-1])
    members = node.members or ()
    place = next((number for number, (key, _, _) in enumerate(members) if key == path[-1]), None)
    if depth < len(path) - 1 or place is None:
        return text
    start, end = members[place][1], members[place][2].end
    before = members[place - 1][2].end if place else node.start + 1
    after = members[place + 1][1] if place + 1 < len(members) else node.end - 1
    if len(members) == 1 and not COMMENT.search(text[before:start] + text[end:after]):
        return text[: node.start] + "{}" + text[node.end :]
    comma = _find_comma(text, end, after)
    if comma is not None:
        return _cut(text, start, rest=text[end:comma] + text[comma + 1 :])
    if place and not COMMENT.search(text[before:start]):
        return text[:before] + text[end:]
    # Where there are comments, a comma may stand before the end: perhaps it did before.
    return _cut(text, start, rest=text[end:])


def _find_comma(text: str, start: int, end: int) -> int | None:
    """The one that separates two members, which is none of those in a comment."""
    blank = COMMENT.sub(lambda found: " " * len(found.group()), text[start:end])
    at = blank.find(",")
    return None if at < 0 else start + at


def _cut(text: str, start: int, *, rest: str) -> str:
    """Without a member; where it had its lines for itself, without those."""
    head = text[:start].rstrip(" \t")
    if head.endswith("\n") and re.match(r"[ \t]*(?:\r?\n|$)", rest):
        return head.removesuffix("\n").removesuffix("\r") + rest.lstrip(" \t")
    return text[:start] + rest.lstrip(" \t")


def _deepest(root: Node, path: tuple[str, ...]) -> tuple[Node, int]:
    """The last object on the way that is there, and how far that is."""
    node = root
    for depth, key in enumerate(path):
        if node.members is None:
            raise JsonSyntaxError(f"'{'.'.join(path[:depth]) or 'the file'}' is not an object", node.start)
        if [name for name, _, _ in node.members].count(key) > 1:
            raise JsonSyntaxError(f"'{key}' is there twice", node.start)
        found = node.find(key)
        if found is None:
            return node, depth
        node = found
    return node, len(path)


def _replace_members(text: str, node: Node, entry: dict[str, Any]) -> str:
    for key, value in entry.items():
        old = node.find(key)
        text = _insert(text, node, key, value) if old is None else _replace(text, old, value)
        node = _again(text, node)
    return text


def _replace(text: str, old: Node, value: Any) -> str:
    if old.value == as_read(value):
        return text
    return text[: old.start] + _dump(value, text, _indent_at(text, old.start)) + text[old.end :]


def _again(text: str, node: Node) -> Node:
    """The object that begins at the same place, after something in it was changed."""
    return read_at(text, node.start)


def _insert(text: str, node: Node, key: str, value: Any) -> str:
    """As the last member of an object, laid out as the others are."""
    newline = "\r\n" if "\r\n" in text else "\n"
    body = text[node.start + 1 : node.end - 1]
    if node.members and "\n" not in body:
        space = " " if ", " in body or '": ' in body else ""
        made = f"{space}{json.dumps(key)}:{space}{json.dumps(value, ensure_ascii=False)}"
    else:
        inner = _indent_at(text, node.members[0][1]) if node.members else _indent_at(text, node.start) + _unit(text)
        made = f"{newline}{inner}{json.dumps(key)}: {_dump(value, text, inner)}"
    if not node.members:
        comments = body.rstrip()
        return f"{text[: node.start + 1]}{comments}{made}{newline}{_indent_at(text, node.start)}{text[node.end - 1 :]}"
    last = node.members[-1][2].end
    tail = text[last : node.end - 1]
    comma = "" if "," in COMMENT.sub("", tail) else ","
    said = tail.rstrip()
    return text[:last] + comma + said + made + tail[len(said) :] + text[node.end - 1 :]


def _dump(value: Any, text: str, indent: str) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text)).split("\n")
    return (newline + indent).join(lines)


def _indent_at(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return found[1] if found else "  "


def refuse(path: str, text: str, broken: JsonSyntaxError) -> ConfigError:
    line = text.count("\n", 0, broken.at) + 1
    return ConfigError(
        f"{path}, line {line}: {broken}.", hint="Nothing was changed. Correct the file, or see 'kept connect print'."
    )

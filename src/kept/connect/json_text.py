"""Changing one entry of a JSON file and no other byte of it: comments, order and layout stay as they are.

Reads JSON, JSON with comments and trailing commas (jsonc), and what of JSON5 people write by hand: single quotes and
names without quotes besides. Numbers and words are not interpreted, so they cannot be changed by being read.
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from typing import Any

from kept.errors import ConfigError
from kept.values import frozen

_SPACE = re.compile(r"[ \t\r\n]+")
_ANY_SPACE = re.compile(r"\s+|\ufeff")
_COMMENT = re.compile(r"//[^\n\r]*|/\*.*?\*/", re.DOTALL)
_DOUBLE = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"', re.DOTALL)
_SINGLE = re.compile(r"'(?:[^'\\\n]|\\.)*'", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_STRICT_WORD = re.compile(r"(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.+-])")
_LOOSE_WORD = re.compile(r"[+-]?(?:[\w.]|(?<=[eE])[+-])+")
_MAX_DEPTH = 200


class Broken(Exception):
    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.at = at


@frozen
class Node:
    start: int
    end: int
    value: Any
    """A text, a Word for what is neither text nor holds anything, a list, or a dict."""
    members: tuple[tuple[str, int, Node], ...] | None = field(default=None)
    """Of an object: name, where the name begins, and the value."""

    def find(self, name: str) -> Node | None:
        return next((node for key, _, node in self.members or () if key == name), None)


@frozen
class Word:
    text: str


def parse(text: str, dialect: str) -> Node:
    """The whole of a file, or Broken."""
    return _Parser(text, dialect).whole()


class _Parser:
    def __init__(self, text: str, dialect: str) -> None:
        self.text = text
        self.comments = dialect != "json"
        self.loose = dialect == "json5"
        self.space = _ANY_SPACE if self.loose else _SPACE

    def whole(self) -> Node:
        node = self.value(self.skip(len(self.text) - len(self.text.removeprefix("\ufeff"))), 0)
        rest = self.skip(node.end)
        if rest != len(self.text):
            raise Broken("something stands behind its end", rest)
        return node

    def skip(self, at: int) -> int:
        while True:
            found = self.space.match(self.text, at) or (self.comments and _COMMENT.match(self.text, at))
            if not found:
                return at
            at = found.end()

    def value(self, at: int, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise Broken("it is nested too deeply", at)
        match self.text[at : at + 1]:
            case "{":
                return self.object(at, depth)
            case "[":
                return self.array(at, depth)
            case '"' | "'":
                return self.string(at)
            case "":
                raise Broken("it ends too early", at)
            case _:
                found = (_LOOSE_WORD if self.loose else _STRICT_WORD).match(self.text, at)
                if not found:
                    raise Broken(f"{self.text[at]!r} was not expected", at)
                return Node(at, found.end(), Word(found.group()))

    def string(self, at: int) -> Node:
        found = _DOUBLE.match(self.text, at) or (self.loose and _SINGLE.match(self.text, at))
        if not found:
            raise Broken("a text is not closed, or may not be written like this", at)
        return Node(at, found.end(), self.decode(found.group(), at))

    def decode(self, raw: str, at: int) -> str:
        if self.loose:
            inner = re.sub(r"\\\r?\n", "", raw[1:-1]).replace("\\'", "'")
            inner = re.sub(r'(?<!\\)((?:\\\\)*)"', r'\1\\"', inner) if raw[0] == "'" else inner
            raw = f'"{inner}"'
        try:
            return str(json.loads(raw, strict=False))
        except ValueError:
            raise Broken("a text holds something that it may not", at) from None

    def object(self, at: int, depth: int) -> Node:
        members: list[tuple[str, int, Node]] = []
        here = self.skip(at + 1)
        while self.text[here : here + 1] != "}":
            key, end = self.name(here)
            colon = self.skip(end)
            if self.text[colon : colon + 1] != ":":
                raise Broken("':' is missing", colon)
            node = self.value(self.skip(colon + 1), depth + 1)
            members.append((key, here, node))
            here = self.separated(node.end, "}")
        return Node(at, here + 1, {key: node.value for key, _, node in members}, tuple(members))

    def name(self, at: int) -> tuple[str, int]:
        if self.loose and (found := _NAME.match(self.text, at)):
            return found.group(), found.end()
        if self.text[at : at + 1] not in ('"', "'"):
            raise Broken("a name in quotes was expected", at)
        node = self.string(at)
        return node.value, node.end

    def array(self, at: int, depth: int) -> Node:
        items: list[Any] = []
        here = self.skip(at + 1)
        while self.text[here : here + 1] != "]":
            node = self.value(here, depth + 1)
            items.append(node.value)
            here = self.separated(node.end, "]")
        return Node(at, here + 1, items)

    def separated(self, at: int, closing: str) -> int:
        """Where the next one begins, or the end."""
        here = self.skip(at)
        if self.text[here : here + 1] == closing:
            return here
        if self.text[here : here + 1] != ",":
            raise Broken(f"',' or '{closing}' was expected", here)
        after = self.skip(here + 1)
        if self.text[after : after + 1] == closing and not self.comments:
            raise Broken("a comma stands before the end", here)
        return after


# changing


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
    node, depth = _deepest(parse(text, dialect), path[:-1])
    members = node.members or ()
    place = next((number for number, (key, _, _) in enumerate(members) if key == path[-1]), None)
    if depth < len(path) - 1 or place is None:
        return text
    if place:
        return _cut(text, members[place - 1][2].end, members[place][1], members[place][2].end)
    if len(members) > 1:
        return text[: members[0][1]] + text[members[1][1] :]
    return text[: node.start] + "{}" + text[node.end :]


def _cut(text: str, before: int, start: int, end: int) -> str:
    """Without a member and the comma before it; comments that stand between are somebody's, and stay."""
    gap, rest = text[before:start], text[end:]
    if not _COMMENT.search(gap):
        return text[:before] + rest
    following = re.match(r"\s*,", rest)
    return text[:before] + gap.rstrip() + (rest[following.end() :] if following else rest)


def _deepest(root: Node, path: tuple[str, ...]) -> tuple[Node, int]:
    """The last object on the way that is there, and how far that is."""
    node = root
    for depth, key in enumerate(path):
        if node.members is None:
            raise Broken(f"'{'.'.join(path[:depth]) or 'the file'}' is not an object", node.start)
        if [name for name, _, _ in node.members].count(key) > 1:
            raise Broken(f"'{key}' is there twice", node.start)
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


def as_read(value: Any) -> Any:
    """A value as `parse` would give it."""
    match value:
        case dict():
            return {key: as_read(one) for key, one in value.items()}
        case list():
            return [as_read(one) for one in value]
        case str():
            return value
        case _:
            return Word(json.dumps(value))


def _again(text: str, node: Node) -> Node:
    """The object that begins at the same place, after something in it was changed."""
    return _Parser(text, "json5").value(node.start, 0)


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
    comma = "" if "," in _COMMENT.sub("", tail) else ","
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


def refuse(path: str, text: str, broken: Broken) -> ConfigError:
    line = text.count("\n", 0, broken.at) + 1
    return ConfigError(
        f"{path}, line {line}: {broken}.", hint="Nothing was changed. Correct the file, or see 'kept connect print'."
    )

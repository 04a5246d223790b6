"""Reading JSON with the place of everything in it.

JSON, JSON with comments and trailing commas (jsonc), and what of JSON5 people write by hand: single quotes and names
without quotes besides. Numbers and words are not interpreted, so they cannot be changed by being read.
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from typing import Any

from kept.values import frozen

_SPACE = re.compile(r"[ \t\r\n]+")
_ANY_SPACE = re.compile(r"\s+|\ufeff")
COMMENT = re.compile(r"//[^\n\r]*|/\*.*?\*/", re.DOTALL)
_DOUBLE = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"', re.DOTALL)
_SINGLE = re.compile(r"'(?:[^'\\\n]|\\.)*'", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_STRICT_WORD = re.compile(r"(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.+-])")
_LOOSE_WORD = re.compile(r"[+-]?(?:[\w.]|(?<=[eE])[+-])+")
_MAX_DEPTH = 200


class JsonSyntaxError(Exception):
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


def read_at(text: str, start: int) -> Node:
    """What begins there, in a text that was read before."""
    return _Parser(text, "json5").value(start, 0)


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
            raise JsonSyntaxError("something stands behind its end", rest)
        return node

    def skip(self, at: int) -> int:
        while True:
            found = self.space.match(self.text, at) or (self.comments and COMMENT.match(self.text, at))
            if not found:
                return at
            at = found.end()

    def value(self, at: int, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise JsonSyntaxError("it is nested too deeply", at)
        match self.text[at : at + 1]:
            case "{":
                return self.object(at, depth)
            case "[":
                return self.array(at, depth)
            case '"' | "'":
                return self.string(at)
            case "":
                raise JsonSyntaxError("it ends too early", at)
            case _:
                found = (_LOOSE_WORD if self.loose else _STRICT_WORD).match(self.text, at)
                if not found:
                    raise JsonSyntaxError(f"{self.text[at]!r} was not expected", at)
                return Node(at, found.end(), Word(found.group()))

    def string(self, at: int) -> Node:
        found = _DOUBLE.match(self.text, at) or (self.loose and _SINGLE.match(self.text, at))
        if not found:
            raise JsonSyntaxError("a text is not closed, or may not be written like this", at)
        return Node(at, found.end(), self.decode(found.group(), at))

    def decode(self, raw: str, at: int) -> str:
        if self.loose:
            inner = re.sub(r"\\\r?\n", "", raw[1:-1]).replace("\\'", "'")
            inner = re.sub(r'(?<!\\)((?:\\\\)*)"', r'\1\\"', inner) if raw[0] == "'" else inner
            raw = f'"{inner}"'
        try:
            return str(json.loads(raw, strict=False))
        except ValueError:
            raise JsonSyntaxError("a text holds something that it may not", at) from None

    def object(self, at: int, depth: int) -> Node:
        members: list[tuple[str, int, Node]] = []
        here = self.skip(at + 1)
        while self.text[here : here + 1] != "}":
            key, end = self.name(here)
            colon = self.skip(end)
            if self.text[colon : colon + 1] != ":":
                raise JsonSyntaxError("':' is missing", colon)
            node = self.value(self.skip(colon + 1), depth + 1)
            members.append((key, here, node))
            here = self.separated(node.end, "}")
        return Node(at, here + 1, {key: node.value for key, _, node in members}, tuple(members))

    def name(self, at: int) -> tuple[str, int]:
        if self.loose and (found := _NAME.match(self.text, at)):
            return found.group(), found.end()
        if self.text[at : at + 1] not in ('"', "'"):
            raise JsonSyntaxError("a name in quotes was expected", at)
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
            raise JsonSyntaxError(f"',' or '{closing}' was expected", here)
        after = self.skip(here + 1)
        if self.text[after : after + 1] == closing and not self.comments:
            raise JsonSyntaxError("a comma stands before the end", here)
        return after


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

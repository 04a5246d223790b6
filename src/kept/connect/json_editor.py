"""Changing one entry of a JSON file and no other byte of it: comments, order and layout stay as they are.

`parse` reads JSON, also with what people add by hand and some programs allow: comments, trailing commas, single quotes,
names without quotes. It records where each value begins and ends, so that `set_entry` and
`remove_entry` can edit the text itself. Numbers and literals are kept as written: reading them cannot change them.
"""

from __future__ import annotations

import json
import re
from typing import Any

from kept.errors import ConfigError
from kept.values import frozen

_SPACE = re.compile(r"\s+|\ufeff")
_COMMENT = re.compile(r"//[^\n\r]*|/\*.*?\*/", re.DOTALL)
_DOUBLE_QUOTED = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"', re.DOTALL)
_SINGLE_QUOTED = re.compile(r"'(?:[^'\\\n]|\\.)*'", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_LITERAL = re.compile(r"[+-]?(?:[\w.]|(?<=[eE])[+-])+")
_MAX_DEPTH = 200


class JsonSyntaxError(Exception):
    """The text is not JSON, or cannot be edited without touching the rest."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.at = at


@frozen
class Node:
    """A value and its position in the text."""

    start: int
    end: int
    value: Any
    """A str, a `JsonLiteral` for a number, true, false or null, a list, or a dict."""
    members: tuple[tuple[str, int, Node], ...] | None = None
    """For an object: the name, the position of the name, and the value of each member."""

    def find(self, name: str) -> Node | None:
        return next((node for key, _, node in self.members or () if key == name), None)


@frozen
class JsonLiteral:
    """A number, true, false or null, as it is written."""

    text: str


# reading


def parse(text: str) -> Node:
    """Return the root of a file. Raise JsonSyntaxError if the text is not JSON."""
    return _Parser(text).whole()


def as_parsed(value: Any) -> Any:
    """Return a Python value as `parse` would return it."""
    match value:
        case dict():
            return {key: as_parsed(item) for key, item in value.items()}
        case list():
            return [as_parsed(item) for item in value]
        case str():
            return value
        case _:
            return JsonLiteral(json.dumps(value))


class _Parser:
    """Recursive descent. Every method takes a position, and those that read a value return its `Node`."""

    def __init__(self, text: str) -> None:
        self.text = text

    def whole(self) -> Node:
        node = self.value(self.skip(0), 0)
        rest = self.skip(node.end)
        if rest != len(self.text):
            raise JsonSyntaxError("unexpected text after the end of the value", rest)
        return node

    def skip(self, at: int) -> int:
        """Return the position after white space and comments."""
        while match := _SPACE.match(self.text, at) or _COMMENT.match(self.text, at):
            at = match.end()
        return at

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
                raise JsonSyntaxError("the file ends too early", at)
            case _:
                literal = _LITERAL.match(self.text, at)
                if not literal:
                    raise JsonSyntaxError(f"unexpected {self.text[at]!r}", at)
                return Node(at, literal.end(), JsonLiteral(literal.group()))

    def string(self, at: int) -> Node:
        quoted = _DOUBLE_QUOTED.match(self.text, at) or _SINGLE_QUOTED.match(self.text, at)
        if not quoted:
            raise JsonSyntaxError("a string is not closed, or not quoted as it should be", at)
        return Node(at, quoted.end(), self.decode(quoted.group(), at))

    def decode(self, raw: str, at: int) -> str:
        inner = re.sub(r"(?<!\\)((?:\\\\)*)\\(?:\r?\n|('))", r"\1\2", raw[1:-1])
        inner = re.sub(r'(?<!\\)((?:\\\\)*)"', r'\1\\"', inner) if raw[0] == "'" else inner
        try:
            return str(json.loads(f'"{inner}"', strict=False))
        except ValueError:
            raise JsonSyntaxError("a string has an invalid escape", at) from None

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
            here = self.next_item(node.end, "}")
        return Node(at, here + 1, {key: node.value for key, _, node in members}, tuple(members))

    def name(self, at: int) -> tuple[str, int]:
        """Return the name of a member and the position after it."""
        if name := _NAME.match(self.text, at):
            return name.group(), name.end()
        if self.text[at : at + 1] not in ('"', "'"):
            raise JsonSyntaxError("expected a name in quotes", at)
        node = self.string(at)
        return node.value, node.end

    def array(self, at: int, depth: int) -> Node:
        items: list[Any] = []
        here = self.skip(at + 1)
        while self.text[here : here + 1] != "]":
            node = self.value(here, depth + 1)
            items.append(node.value)
            here = self.next_item(node.end, "]")
        return Node(at, here + 1, items)

    def next_item(self, at: int, closing: str) -> int:
        """Return the position of the next item after a comma, or of the closing bracket."""
        here = self.skip(at)
        if self.text[here : here + 1] == closing:
            return here
        if self.text[here : here + 1] != ",":
            raise JsonSyntaxError(f"expected ',' or '{closing}'", here)
        return self.skip(here + 1)


# editing


def set_entry(text: str, path: tuple[str, ...], entry: Any) -> str:
    """Return the text with this entry at that path. Other members of an object that is there already are kept."""
    text = text if text.strip("\ufeff \t\r\n") else "{}\n"
    node, depth = _find_deepest(parse(text), path)
    rest = path[depth:]
    if rest:
        value = entry
        for key in reversed(rest[1:]):
            value = {key: value}
        return _insert(text, node, rest[0], value)
    if isinstance(entry, dict) and node.members is not None:
        return _set_members(text, node, entry)
    return _replace(text, node, entry)


def remove_entry(text: str, path: tuple[str, ...]) -> str:
    """Return the text without the entry at that path. Comments around it stay: the user wrote them."""
    node, depth = _find_deepest(parse(text), path[:-1])
    members = node.members or ()
    index = next((number for number, (key, _, _) in enumerate(members) if key == path[-1]), None)
    if depth < len(path) - 1 or index is None:
        return text
    start, end = members[index][1], members[index][2].end
    before = members[index - 1][2].end if index else node.start + 1
    after = members[index + 1][1] if index + 1 < len(members) else node.end - 1
    if len(members) == 1 and not _COMMENT.search(text[before:start] + text[end:after]):
        return text[: node.start] + "{}" + text[node.end :]
    comma = _find_comma(text, end, after)
    if comma is not None:
        return _cut(text, start, rest=text[end:comma] + text[comma + 1 :])
    if index and not _COMMENT.search(text[before:start]):
        return text[:before] + text[end:]
    # The comma before the member stays: who allows comments allows trailing commas, so the result is valid.
    return _cut(text, start, rest=text[end:])


def syntax_error(path: str, text: str, error: JsonSyntaxError) -> ConfigError:
    """Return the error for the user, with the line of the file."""
    line = text.count("\n", 0, error.at) + 1
    return ConfigError(
        f"{path}, line {line}: {error}.", hint="Nothing was changed. Correct the file, or see 'kept connect print'."
    )


def _find_deepest(root: Node, path: tuple[str, ...]) -> tuple[Node, int]:
    """Return the last value on the path that exists, and how many keys lead to it."""
    node = root
    for depth, key in enumerate(path):
        if node.members is None:
            raise JsonSyntaxError(f"'{'.'.join(path[:depth]) or 'the file'}' is not an object", node.start)
        if [name for name, _, _ in node.members].count(key) > 1:
            raise JsonSyntaxError(f"'{key}' appears twice", node.start)
        child = node.find(key)
        if child is None:
            return node, depth
        node = child
    return node, len(path)


def _set_members(text: str, node: Node, entry: dict[str, Any]) -> str:
    for key, value in entry.items():
        old = node.find(key)
        text = _insert(text, node, key, value) if old is None else _replace(text, old, value)
        # Positions have moved. The object still begins at the same one.
        node = _Parser(text).value(node.start, 0)
    return text


def _replace(text: str, old: Node, value: Any) -> str:
    if old.value == as_parsed(value):
        return text
    return text[: old.start] + _dump(value, text, _indent_at(text, old.start)) + text[old.end :]


def _insert(text: str, node: Node, key: str, value: Any) -> str:
    """Add the last member of an object, in the layout of the others."""
    newline = "\r\n" if "\r\n" in text else "\n"
    body = text[node.start + 1 : node.end - 1]
    if node.members and "\n" not in body:
        space = " " if ", " in body or '": ' in body else ""
        member = f"{space}{json.dumps(key)}:{space}{json.dumps(value, ensure_ascii=False)}"
    else:
        inner = _indent_at(text, node.members[0][1]) if node.members else _indent_at(text, node.start) + _indent(text)
        member = f"{newline}{inner}{json.dumps(key)}: {_dump(value, text, inner)}"
    if not node.members:
        comments = body.rstrip()
        closing = f"{newline}{_indent_at(text, node.start)}"
        return f"{text[: node.start + 1]}{comments}{member}{closing}{text[node.end - 1 :]}"
    last = node.members[-1][2].end
    tail = text[last : node.end - 1]
    comma = "" if "," in _COMMENT.sub("", tail) else ","
    comments = tail.rstrip()
    return text[:last] + comma + comments + member + tail[len(comments) :] + text[node.end - 1 :]


def _find_comma(text: str, start: int, end: int) -> int | None:
    """Return the position of the comma between two members, ignoring commas in comments."""
    blank = _COMMENT.sub(lambda comment: " " * len(comment.group()), text[start:end])
    at = blank.find(",")
    return None if at < 0 else start + at


def _cut(text: str, start: int, *, rest: str) -> str:
    """Join the text before a member with the text after it, without the lines that held only the member."""
    head = text[:start].rstrip(" \t")
    if head.endswith("\n") and re.match(r"[ \t]*(?:\r?\n|$)", rest):
        return head.removesuffix("\n").removesuffix("\r") + rest.lstrip(" \t")
    return text[:start] + rest.lstrip(" \t")


def _dump(value: Any, text: str, indent: str) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = json.dumps(value, ensure_ascii=False, indent=_indent(text)).split("\n")
    return (newline + indent).join(lines)


def _indent_at(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _indent(text: str) -> str:
    """Return one level of indentation, as the first indented line has it."""
    indented = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return indented[1] if indented else "  "

"""Lists of names in a line: one name can be taken out, and the others stay."""

from __future__ import annotations

import re
from collections.abc import Callable

_LEAD = re.compile(r"\s*(?:(?:[-*+>]|\d+[.)])\s+)?(?P<label>[*_]*[^\W\d_][^:,;|\[\]]{0,40}:[*_:]*\s*)?(?:\[(?!\[))?")
_END = re.compile(r"\]?[\s.]*\Z")
_BETWEEN = re.compile(r"(\s*(?:[,;·]\s*(?:and\s+)?|&\s*|\band\b\s*))")
_LONGEST_NAME = 4
"""Words of a name."""


def take_out(text: str, matches: Callable[[str], bool], *, is_property: bool = False) -> str | None:
    """Return a passage without the names that match in its lists, or None if it names them in other ways.

    A property keeps its key, even if it has no other value.
    """
    lines = [_without(line, matches, is_property) if matches(line) else line for line in text.split("\n")]
    rest = [line for line in lines if line is not None]
    return "\n".join(rest) if len(rest) == len(lines) and not matches("\n".join(rest)) else None


def _without(line: str, matches: Callable[[str], bool], is_property: bool) -> str | None:
    lead = _LEAD.match(line)
    start = lead.end() if lead else 0
    body, end = line[start:], ""
    if trailing := _END.search(body.replace("]]", "\0\0")):
        body, end = body[: trailing.start()], body[trailing.start() :]
    parts = _BETWEEN.split(body)
    items = parts[::2]
    has_label = lead is not None and lead["label"] is not None
    others = [item for item in items if not matches(item)]
    if is_property and has_label and len(items) == len(others) + 1 and (len(items) > 1 or _is_name(items[0])):
        pass
    elif not others or not all(map(_is_name, items)) or not (has_label or len(items) > 2):
        return None
    rest = ""
    for number, item in enumerate(items):
        if not matches(item):
            rest += (parts[2 * number - 1] if rest else "") + item
    return (line[:start] + rest + end).rstrip(" ")


def _is_name(item: str) -> bool:
    """Return whether an item of a list looks like a name or a link."""
    plain = re.sub(r"\s*\([^()]*\)\Z", "", item.strip().strip("\"'*_@"))
    if plain.startswith("[[") and plain.endswith("]]"):
        return True
    words = plain.split()
    return 0 < len(words) <= _LONGEST_NAME and all(not word[0].isalpha() or word[0].isupper() for word in words)

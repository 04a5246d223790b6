"""Splits names in code: `getUserName` is also found by "user name".

The tokenizer splits names that are joined by punctuation (`get_user_name`, `src/app.py`). It takes a name joined
by capitals for one word, so the parts of such names are added to the context of a chunk. There they break no phrase of
the text, and count less than prose: as part of the text they ranked code before explanations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_MAX_NAME_CHARS = 64
"""A longer word is data, not a name: a key, a hash, an encoded image."""
_MAX_PARTS = 8

# A capital after a lower-case letter or a digit, or before a word. The capital comes first in the pattern because the
# regex engine can skip to it.
_JOINT = re.compile(r"[A-Z](?:(?<=[a-z0-9][A-Z])|(?=[A-Z][a-z]{2}))")
_PART_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")
_ALPHANUMERIC = re.compile(r"[A-Za-z0-9]+")


def split_name(word: str) -> list[str]:
    """Split `getUserName` into get, User, Name. Return an empty list for a word that is not joined by capitals."""
    if len(word) > _MAX_NAME_CHARS or not word.isascii() or not word.isalnum():
        return []
    parts = _PART_BOUNDARY.split(word)
    return parts if 1 < len(parts) <= _MAX_PARTS else []


def name_parts_in(text: str) -> str:
    """Return the parts of all names in a text that are joined by capitals, each name once."""
    names = dict.fromkeys(_iter_names(text))
    return " ".join(" ".join(parts) for name in names if (parts := split_name(name)))


def _iter_names(text: str) -> Iterator[str]:
    end = 0
    for joint in _JOINT.finditer(text):
        if joint.start() < end:
            continue  # a further joint of the same name
        start = joint.start()
        while start > end and text[start - 1].isalnum() and text[start - 1].isascii():
            start -= 1
        name = _ALPHANUMERIC.match(text, start)
        if name:
            end = name.end()
            yield name.group()


def is_code_name(word: str) -> bool:
    """Return whether capitals join words that people also write apart: `getUserName`, not `GitHub` or `macOS`."""
    parts = split_name(word)
    return len(parts) > 2 or (len(parts) == 2 and parts[0].islower() and len(parts[0]) > 1 and not parts[1].isupper())

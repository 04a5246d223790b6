"""Names in code, taken apart: `getUserName` is also found as "user name".

What is joined by signs (`get_user_name`, `src/app.py`) the tokenizer parts by itself. What is joined by capitals it
takes for one word, so the parts of such words are added to the context of a chunk. There they break no phrase of the
text, and count less than what somebody wrote in words: in the text itself they put code before explanations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_LONGEST = 64
"""What is longer is no name but data: a key, a hash, an encoded picture."""
_MOST_PARTS = 8

# A capital behind a small letter or a digit, or before a word. The capital comes first, which the engine skips to.
_JOINT = re.compile(r"[A-Z](?:(?<=[a-z0-9][A-Z])|(?=[A-Z][a-z]{2}))")
_EDGE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")
_SIGNS = re.compile(r"[A-Za-z0-9]+")


def parts_of_name(word: str) -> list[str]:
    """`getUserName` → get, User, Name. Nothing where a word is not joined by capitals."""
    if len(word) > _LONGEST or not word.isascii() or not word.isalnum():
        return []
    parts = _EDGE.split(word)
    return parts if 1 < len(parts) <= _MOST_PARTS else []


def name_parts_in(text: str) -> str:
    """The parts of all such names in a text, each name once."""
    names = dict.fromkeys(_names(text))
    return " ".join(" ".join(parts) for name in names if (parts := parts_of_name(name)))


def _names(text: str) -> Iterator[str]:
    end = 0
    for joint in _JOINT.finditer(text):
        if joint.start() < end:
            continue  # a further joint of the same name
        start = joint.start()
        while start > end and text[start - 1].isalnum() and text[start - 1].isascii():
            start -= 1
        name = _SIGNS.match(text, start)
        if name:
            end = name.end()
            yield name.group()


def is_code_name(word: str) -> bool:
    """Whether capitals join what somebody may write apart: `getUserName`, not `GitHub`, `iPhone` or `macOS`."""
    parts = parts_of_name(word)
    return len(parts) > 2 or (len(parts) == 2 and parts[0].islower() and len(parts[0]) > 1 and not parts[1].isupper())

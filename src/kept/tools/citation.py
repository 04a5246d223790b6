"""Citations: how the place of a passage is shown to a model, and read back from one.

A file's name may hold anything, a forged result included. So a path stands in our own lines only if it consists of
letters, digits and a few signs; any other is shown as the URI of its resource, percent-encoded. Both can be handed back
to a tool as they are.
"""

from __future__ import annotations

import re

from kept.errors import UsageError
from kept.records import cite
from kept.text import clip, one_line

NOTES = "kept://notes/"
MAX_PATH_CHARS = 200
LONG_NAME = "a note with a long name"
_CITED = re.compile(r"^(?P<path>.+\.(?:md|jsonl))#L(?P<first>\d{1,9})(?:-L?(?P<last>\d{1,9}))?$", re.IGNORECASE)
_SIGNS = frozenset("./_-")
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
"""Letters and marks by their category, and yet seen by nobody."""


def show_path(path: str) -> str | None:
    """Return the path as it may stand in a line of ours, or None if it is too long for one."""
    shown = path if all(map(_is_plain, path)) else uri_of(path)
    return shown if len(shown) <= MAX_PATH_CHARS else None


def show_name(name: str) -> str:
    """Return a name as it may be shown among our own words: on one line, cut where it is long, quoted where it is
    odd."""
    import json
    import unicodedata

    seen = "".join(char for char in one_line(name) if unicodedata.category(char) not in ("Cc", "Cf"))
    cut = clip(seen, MAX_PATH_CHARS)
    return cut if all(map(_is_plain, cut)) else json.dumps(cut, ensure_ascii=False)


def show_citation(path: str, first_line: int, last_line: int) -> str | None:
    shown = show_path(path)
    return None if shown is None else cite(shown, first_line, last_line)


def uri_of(path: str) -> str:
    from urllib.parse import quote

    return NOTES + quote(path, errors="replace")


def from_uri(path: str) -> str:
    """Return the path that a URI names; any other path is returned as it is. Decodes once."""
    return decode(path.removeprefix(NOTES)) if path.startswith(NOTES) else path


def from_citation(path: str, start: int | None, lines: int | None) -> tuple[str, int | None, int | None]:
    """Path, first line and number of lines. What was said beside the citation goes before what it says."""
    cited = _CITED.match(path)
    if not cited:
        return from_uri(path), start, lines
    first = int(cited["first"])
    last = int(cited["last"] or first)
    return from_uri(cited["path"]), start or first, lines or max(1, last - first + 1)


def decode(text: str) -> str:
    from urllib.parse import unquote

    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise UsageError("That is not UTF-8, percent-encoded.", hint="Encode the path as UTF-8.") from None


def _is_plain(char: str) -> bool:
    if char.isascii():
        return char.isalnum() or char in _SIGNS
    import unicodedata

    return unicodedata.category(char)[0] in "LMN" and char not in _UNSEEN

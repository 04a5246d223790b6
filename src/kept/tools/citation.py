"""Citations: how the position of a passage is shown to a model, and read back from one.

A file name may contain anything, even a forged result. So a path appears in our own lines only if it consists of
letters, digits and a few punctuation characters; any other is shown as the URI of its resource, percent-encoded. A tool
accepts both.
"""

from __future__ import annotations

import re

from kept.errors import UsageError
from kept.limits import clip, one_line
from kept.records import cite

NOTES = "kept://notes/"
MAX_PATH_CHARS = 200
LONG_NAME = "a note with a long name"
_CITED = re.compile(r"^(?P<path>.+\.(?:md|jsonl))#L(?P<first>\d{1,9})(?:-L?(?P<last>\d{1,9}))?$", re.IGNORECASE)
_PUNCTUATION = frozenset("./_-")
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
"""Characters that are letters or marks by their Unicode category, but are not visible."""


def show_path(path: str) -> str | None:
    """Return the path in a form that is safe in our own lines, or None if that is too long."""
    shown = path if all(map(_is_plain, path)) else uri_of(path)
    return shown if len(shown) <= MAX_PATH_CHARS else None


def show_name(name: str) -> str:
    """Return a name in a form that is safe among our own words: one line, shortened, and quoted if it has unusual
    characters."""
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
    """Return path, first line and number of lines. An explicit ``start`` or ``lines`` overrides the citation."""
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
        raise UsageError("The path is not percent-encoded UTF-8.", hint="Encode it as UTF-8.") from None


def _is_plain(char: str) -> bool:
    if char.isascii():
        return char.isalnum() or char in _PUNCTUATION
    import unicodedata

    return unicodedata.category(char)[0] in "LMN" and char not in _INVISIBLE

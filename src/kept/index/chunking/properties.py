"""Properties of a note: YAML front matter, or the `key:: value` lines at the top of a Logseq page.

Properties are data: a note is found by its title, aliases and tags, but their lines are not a passage.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from typing import Any

from kept.base.safe_yaml import YamlRefused, load_yaml
from kept.base.values import frozen

MAX_LINES = 200
"""Front matter that is not closed within this many lines is text."""
MAX_CHARS = 64_000
MAX_NAME_CHARS = 200
"""A title counts for every chunk of its note, so a longer one is cut."""
MAX_NAMES = 50
MAX_TAGS = 500
MAX_WORDS_CHARS = 2_000
_MAX_PROBLEM_CHARS = 200
_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})
_LOGSEQ = r"\s{0,8}(?:- )?([A-Za-z][\w-]{0,60})::(?: +(.*))?"
_TITLE, _ALIASES, _TAGS = ("title",), ("aliases", "alias"), ("tags", "tag")
_CREATED, _UPDATED = ("created", "date"), ("updated", "modified")
_KNOWN = frozenset({*_TITLE, *_ALIASES, *_TAGS, *_CREATED, *_UPDATED})


@frozen
class NoteProperties:
    lines: int = 0
    """Number of lines at the top of the note that hold the properties."""
    is_text: bool = False
    """True if these lines look like front matter but cannot be read as properties: they are a passage."""
    title: str | None = None
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    created: dt.datetime | None = None
    """Naive times are local."""
    updated: dt.datetime | None = None
    words: str = ""
    """Tags, and names and values of all other properties: the note is found by these words too."""
    warning: str | None = None


NO_PROPERTIES = NoteProperties()


def read_properties(lines: Sequence[str]) -> NoteProperties:
    """Return the properties of a note from its lines."""
    end = _front_matter_end(lines)
    if not end:
        return _read_logseq(lines) if "::" in lines[0] else NO_PROPERTIES
    text = "\n".join(lines[1 : end - 1])
    if len(text) > MAX_CHARS:
        return _as_text(end, f"has more than {MAX_CHARS:,} characters")
    try:
        tree = load_yaml(text, as_text=True)
    except YamlRefused as exc:
        where = f"line {exc.line + 1}: " if exc.line else ""
        return _as_text(end, f"{where}{exc.problem[:_MAX_PROBLEM_CHARS]}")
    if tree is None or tree == "":
        return NoteProperties(end)
    # Text between two rules at the top of a note is not front matter.
    return _make(end, tree) if isinstance(tree, dict) else NoteProperties(end, is_text=True)


def _front_matter_end(lines: Sequence[str]) -> int:
    """Return the number of lines of the front matter, or 0. Markdown itself would read it as a rule and a heading."""
    if lines[0].rstrip() != "---":
        return 0
    for at in range(1, min(len(lines), MAX_LINES)):
        if lines[at].rstrip() in ("---", "..."):
            return at + 1
    return 0


def _as_text(end: int, problem: str) -> NoteProperties:
    return NoteProperties(end, is_text=True, warning=f"front matter cannot be read ({problem}); indexed as text")


def _read_logseq(lines: Sequence[str]) -> NoteProperties:
    tree: dict[str, Any] = {}
    end = 0
    for line in lines[:MAX_LINES]:
        match = re.fullmatch(_LOGSEQ, line)
        if match is None:
            break
        key, value = match[1].lower(), (match[2] or "")[:MAX_CHARS].strip()
        tree[key] = value.split(",") if key in (*_ALIASES, *_TAGS) else value
        end += 1
    return _make(end, tree) if end else NO_PROPERTIES


def _make(end: int, tree: dict[Any, Any]) -> NoteProperties:
    values = {str(key).strip().lower(): value for key, value in tree.items()}
    tags = tuple(dict.fromkeys(_iter_tags(_find(values, _TAGS))))[:MAX_TAGS]
    return NoteProperties(
        lines=end,
        title=next(iter(_iter_names(_find(values, _TITLE), split=False)), None),
        aliases=tuple(dict.fromkeys(_iter_names(_find(values, _ALIASES))))[:MAX_NAMES],
        tags=tags,
        created=_find_time(values, _CREATED),
        updated=_find_time(values, _UPDATED),
        words=_words(tags, values),
    )


def _find(values: dict[str, Any], keys: tuple[str, ...]) -> Any:
    return next((values[key] for key in keys if key in values), None)


def _iter_scalars(value: Any) -> Iterator[str]:
    """Yield every text in a value, however it is nested."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _iter_scalars(key)
            yield from _iter_scalars(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _iter_scalars(inner)
    elif value is not None and str(value).strip() not in _NOTHING:
        yield " ".join(str(value).split())


def _iter_names(value: Any, *, split: bool = True) -> Iterator[str]:
    """Yield titles or aliases. A text of aliases is separated by commas."""
    texts = value.split(",") if split and isinstance(value, str) else value
    for text in _iter_scalars(texts):
        name = text.removeprefix("[[").removesuffix("]]").strip()
        if name:
            yield name[:MAX_NAME_CHARS]


def _iter_tags(value: Any) -> Iterator[str]:
    """Yield tags without '#'. A text of tags is separated by commas or white space."""
    texts = value.replace(",", " ").split() if isinstance(value, str) else value
    for text in _iter_scalars(texts):
        tag = text.lstrip("#").removeprefix("[[").removesuffix("]]").strip()
        if tag:
            yield tag[:MAX_NAME_CHARS]


def _find_time(values: dict[str, Any], keys: tuple[str, ...]) -> dt.datetime | None:
    times = (_parse_time(values[key]) for key in keys if isinstance(values.get(key), str))
    return next((time for time in times if time is not None), None)


def _parse_time(text: str) -> dt.datetime | None:
    """Return a time written as ISO 8601, with '/' or '-', or None."""
    plain = text.strip().removeprefix("[[").removesuffix("]]").strip().replace("/", "-")
    try:
        return dt.datetime.fromisoformat(plain)
    except ValueError:
        return None


def _words(tags: Sequence[str], values: dict[str, Any]) -> str:
    others = {key: value for key, value in values.items() if key not in _KNOWN}
    return " ".join([*tags, *_iter_scalars(others)])[:MAX_WORDS_CHARS]

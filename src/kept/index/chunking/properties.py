"""Properties of a note: YAML front matter, or the `key:: value` lines at the top of a Logseq page.

Properties are data: a note is found by its title, aliases and tags, but their lines are not a passage.

Tags and links in the text of a note, as Obsidian and Logseq write them.

Nothing in code counts. Patterns match in time linear in the text: it may be 4 MB of brackets.
"""

from __future__ import annotations

import datetime as dt
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from kept.base.listings import FoundLink
from kept.base.safe_yaml import YamlRefused, load_yaml
from kept.base.values import frozen

# Front matter that is not closed within this many lines is text.
MAX_LINES = 200
MAX_CHARS = 64_000
# A title counts for every chunk of its note, so a longer one is cut.
MAX_NAME_CHARS = 200
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
    # Markdown itself would read front matter as a rule and a heading.
    closing = (at for at in range(1, min(len(lines), MAX_LINES)) if lines[at].rstrip() in ("---", "..."))
    end = next(closing, -1) + 1 if lines[0].rstrip() == "---" else 0
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
    others = {key: value for key, value in values.items() if key not in _KNOWN}
    tags = tuple(_names(_find(values, _TAGS), split=", \\s"))[:MAX_TAGS]
    return NoteProperties(
        lines=end,
        title=next(iter(_names(_find(values, _TITLE))), None),
        aliases=tuple(_names(_find(values, _ALIASES), split=","))[:MAX_NAMES],
        tags=tags,
        created=_find_time(values, _CREATED),
        updated=_find_time(values, _UPDATED),
        words=" ".join([*tags, *_iter_scalars(others)])[:MAX_WORDS_CHARS],
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


def _names(value: Any, *, split: str = "") -> list[str]:
    """Return titles, aliases or tags, each once. A text of several is separated by any of the characters ``split``."""
    if isinstance(value, str) and split:
        value = re.split(f"[{split}]", value)
    names = (text.lstrip("#") if " " in split else text for text in _iter_scalars(value))
    plain = (name.removeprefix("[[").removesuffix("]]").strip()[:MAX_NAME_CHARS] for name in names)
    return list(dict.fromkeys(filter(None, plain)))


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


MAX_LINKS = 20_000
MAX_FOUND_TAGS = 20_000
TOO_MANY = f"more than {MAX_LINKS:,} links or tags; the others are not listed"
_MAX_CHARS = 1_000
_COLOUR_DIGITS = (3, 4, 6, 8)
_HEX = frozenset("0123456789abcdefABCDEF")
# Obsidian's rule: no white space and no punctuation but '-', '_' and '/'.
_TAG_CHARS = (
    "[^\\s\u2000-\u206f\u2e00-\u2e7f'!\"#$%&()*+,.:;<=>?@^`{|}~\\[\\]\\\\\u3001\u3002\uff0c\uff1a\uff1b\uff01\uff1f]"
)
# At the start of a line, after white space, or after punctuation that can open a word.
_TAG = f"(?<![^\\s(,;*_~\u3001\u3002\uff0c\uff08])#(?:\\[\\[([^\\[\\]\n]{{1,200}})\\]\\]|({_TAG_CHARS}{{1,200}}))"
# Possessive, so that a text without closing brackets is not tried again for every length.
_WIKI = r"(!?)\[\[([^\[\]\n]{1,1000}+)\]\]"
_MARKDOWN = r"\]\((?:<([^<>\n]{1,1000})>|((?:[^\s()<>]|\([^\s()<>]{0,200}\)){1,1000}+))[^()\n]{0,300}+\)"
_DEFINITION = r"^ {0,3}\[[^\[\]\n]{1,300}\]: *(?:<([^<>\n]{1,1000})>|(\S{1,1000}))"
# What every tag and every link has in it, and the marks of headings have not.
_MARKS = r"#[^\s#]|\[\[|\]\(|\]:"
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]*:|//"
NOTE_ENDINGS = (".md", ".markdown")
_ATTACHMENTS = frozenset(
    "png jpg jpeg gif svg webp bmp avif heic ico tif tiff pdf mp3 mp4 m4a wav ogg flac opus webm mov mkv avi 3gp canvas"
    " base zip csv tsv json xls xlsx doc docx ppt pptx odt html htm txt css js py".split()
)


@frozen
class FoundTag:
    tag: str
    line: int
    """Counted from 1."""


@frozen
class References:
    tags: tuple[FoundTag, ...] = ()
    links: tuple[FoundLink, ...] = ()
    is_cut: bool = False
    """True if there are more than fit the limits."""


NO_REFERENCES = References()


def find_references(text: str, code: Sequence[tuple[int, int]], *, tags_after: int = 0) -> References:
    """Return the tags and links of a note.

    ``code`` has the first line of each code block, counted from 0, and the line after it, in order. Tags in the first
    ``tags_after`` lines do not count: these hold the properties.
    """
    if not re.search(_MARKS, text):
        return NO_REFERENCES
    finder = _Finder(text, code)
    links = list(islice(finder.iter_links(), MAX_LINKS + 1))
    in_text = finder.iter_tags() if "#" in text else iter(())
    tags = list(islice((tag for tag in in_text if tag.line > tags_after), MAX_FOUND_TAGS + 1))
    is_cut = len(links) > MAX_LINKS or len(tags) > MAX_FOUND_TAGS
    links.sort(key=lambda link: link.line)
    return References(tuple(tags[:MAX_FOUND_TAGS]), tuple(links[:MAX_LINKS]), is_cut)


class _Finder:
    """Finds references in one text. Links come before tags, so that a '#' inside a link is not a tag."""

    def __init__(self, text: str, code: Sequence[tuple[int, int]]) -> None:
        self.text = text
        self._code = code
        self._code_starts = [first for first, _ in code]
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._inline: dict[int, list[tuple[int, int]]] = {}
        self._links: list[tuple[int, int]] = []

    def iter_links(self) -> Iterator[FoundLink]:
        text = self.text
        if "[[" in text:
            for match, line in self._matches(_WIKI):
                if text[match.start() - 1 : match.start()] != "#":
                    self._links.append(match.span())
                    yield from _wiki_link(match, line)
        for mark, pattern in (("](", _MARKDOWN), ("]:", _DEFINITION)):
            for match, line in self._matches(pattern) if mark in text else ():
                self._links.append(match.span())
                yield from _path_link(match[1] or match[2], line)
        self._links.sort()

    def iter_tags(self) -> Iterator[FoundTag]:
        for match, line in self._matches(_TAG):
            tag = match[1] or _clean_tag(match[2])
            if tag and not self._is_in_link(match.start()):
                yield FoundTag(tag.strip(), line)

    def _matches(self, pattern: str) -> Iterator[tuple[re.Match[str], int]]:
        """Yield the matches outside code, with their lines, counted from 1."""
        for match in re.finditer(pattern, self.text, re.MULTILINE):
            line = self._line_outside_code(match.start())
            if line >= 0:
                yield match, line + 1

    def _is_in_link(self, at: int) -> bool:
        place = bisect_right(self._links, (at, len(self.text))) - 1
        return place >= 0 and self._links[place][0] <= at < self._links[place][1]

    def _line_outside_code(self, at: int) -> int:
        """Return the line of a position, counted from 0, or -1 in code."""
        line = bisect_right(self._starts, at) - 1
        block = bisect_right(self._code_starts, line) - 1
        if block >= 0 and line < self._code[block][1]:
            return -1
        spans = self._inline.get(line)
        if spans is None:
            end = self._starts[line + 1] if line + 1 < len(self._starts) else len(self.text)
            spans = self._inline[line] = inline_code(self.text, self._starts[line], end)
        return -1 if any(start <= at < end for start, end in spans) else line


def inline_code(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the spans of code in a line: from a run of backticks to the next run of the same length."""
    runs = [match.span() for match in re.compile("`+").finditer(text, start, end)]
    closing: dict[int, list[tuple[int, int]]] = {}
    for run in reversed(runs):
        closing.setdefault(run[1] - run[0], []).append(run)
    spans: list[tuple[int, int]] = []
    at = start
    for first, last in runs:
        same = closing[last - first]
        same.pop()
        if first >= at and same:
            at = same[-1][1]
            spans.append((first, at))
    return spans


def _clean_tag(text: str) -> str:
    """Return a tag without empty levels, or "" for a number or a colour, which are not tags."""
    tag = "/".join(level for level in text.split("/") if level)
    if tag.replace("/", "").isdigit() or not any(char.isalnum() or not char.isascii() for char in tag):
        return ""
    return "" if _is_colour(tag) else tag


def _is_colour(tag: str) -> bool:
    """Return whether a tag is a colour such as #1e90ff or #fff. Words of these letters, such as #facade, are tags."""
    if len(tag) not in _COLOUR_DIGITS or not _HEX.issuperset(tag):
        return False
    return not tag.isalpha() or len(set(tag.lower())) == 1


def _wiki_link(match: re.Match[str], line: int) -> Iterator[FoundLink]:
    inner = match[2].replace("\\|", "|")  # in a table, the bar is escaped
    address, _, label = inner.partition("|")
    name, _, heading = address.partition("#")
    target, _, _ = name.partition("^")
    if target.strip() and not _is_attachment(target):
        yield FoundLink(line, _clean_target(target), heading.strip(), label.strip(), bool(match[1]))


def _path_link(address: str, line: int) -> Iterator[FoundLink]:
    if re.match(_SCHEME, address):
        return
    path, _, heading = address.partition("#")
    if "%" in address:
        from urllib.parse import unquote

        path, heading = unquote(path), unquote(heading)
    if path.lower().endswith(NOTE_ENDINGS) and "\0" not in path and "\n" not in path:
        yield FoundLink(line, _clean_target(path), heading.strip(), is_path=True)


def _clean_target(target: str) -> str:
    name = target.strip().replace("\\", "/")
    for ending in NOTE_ENDINGS:
        if name.lower().endswith(ending):
            return name[: -len(ending)]
    return name


def _is_attachment(target: str) -> bool:
    _, dot, ending = target.strip().rpartition(".")
    return bool(dot) and ending.lower() in _ATTACHMENTS

"""Tags and links in the text of a note, as Obsidian and Logseq write them.

Nothing in code counts. Patterns match in time linear in the text: it may be 4 MB of brackets.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache

from kept.base.listings import FoundLink
from kept.base.values import frozen

MAX_LINKS = 20_000
MAX_TAGS = 20_000
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
    if "#" not in text and "[[" not in text and "](" not in text and "]:" not in text:
        return NO_REFERENCES
    finder = _Finder(text, code)
    links: list[FoundLink] = []
    for link in finder.iter_links():
        links.append(link)
        if len(links) > MAX_LINKS:
            break
    tags: list[FoundTag] = []
    for tag in finder.iter_tags() if "#" in text else ():
        if tag.line > tags_after:
            tags.append(tag)
        if len(tags) > MAX_TAGS:
            break
    is_cut = len(links) > MAX_LINKS or len(tags) > MAX_TAGS
    links.sort(key=lambda link: link.line)
    return References(tuple(tags[:MAX_TAGS]), tuple(links[:MAX_LINKS]), is_cut)


class _Finder:
    """Finds references in one text. Links come before tags, so that a '#' inside a link is not a tag."""

    def __init__(self, text: str, code: Sequence[tuple[int, int]]) -> None:
        self.text = text
        self._code = code
        self._code_starts = [first for first, _ in code]
        self._starts = [0]
        at = text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = text.find("\n", at + 1)
        self._inline: dict[int, list[tuple[int, int]]] = {}
        self._links: list[tuple[int, int]] = []

    def iter_links(self) -> Iterator[FoundLink]:
        text = self.text
        if "[[" in text:
            for match in re.finditer(_WIKI, text):
                tagged = text[match.start() - 1 : match.start()] == "#"
                line = -1 if tagged else self._line_outside_code(match.start())
                if line >= 0:
                    self._links.append(match.span())
                    yield from _wiki_link(match, line + 1)
        if "](" in text:
            yield from self._iter_paths(re.finditer(_MARKDOWN, text))
        if "]:" in text:
            yield from self._iter_paths(re.finditer(_DEFINITION, text, re.MULTILINE))
        self._links.sort()

    def _iter_paths(self, matches: Iterator[re.Match[str]]) -> Iterator[FoundLink]:
        for match in matches:
            line = self._line_outside_code(match.start())
            if line >= 0:
                self._links.append(match.span())
                yield from _path_link(match[1] or match[2], line + 1)

    def iter_tags(self) -> Iterator[FoundTag]:
        for match in _tag_pattern().finditer(self.text):
            tag = match[1] or _clean_tag(match[2])
            if tag and not self._is_in_link(match.start()):
                line = self._line_outside_code(match.start())
                if line >= 0:
                    yield FoundTag(tag.strip(), line + 1)

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
            spans = self._inline[line] = self._find_inline_code(line)
        return -1 if any(start <= at < end for start, end in spans) else line

    def _find_inline_code(self, line: int) -> list[tuple[int, int]]:
        start = self._starts[line]
        end = self._starts[line + 1] if line + 1 < len(self._starts) else len(self.text)
        return inline_code(self.text, start, end) if self.text.find("`", start, end) >= 0 else []


def inline_code(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the spans of code in a line: from a run of backticks to the next run of the same length."""
    runs = [match.span() for match in re.compile("`+").finditer(text, start, end)]
    closing: dict[int, int] = {}
    partner: list[int] = [0] * len(runs)
    for at in range(len(runs) - 1, -1, -1):
        length = runs[at][1] - runs[at][0]
        partner[at] = closing.get(length, -1)
        closing[length] = at
    spans: list[tuple[int, int]] = []
    at = 0
    while at < len(runs):
        if partner[at] >= 0:
            spans.append((runs[at][0], runs[partner[at]][1]))
            at = partner[at]
        at += 1
    return spans


@cache
def _tag_pattern() -> re.Pattern[str]:
    return re.compile(_TAG)


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

"""Passages of a note: which of them match, what is left of a list of names, and where lines are that were shown."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from kept.base.records import cite
from kept.base.values import frozen
from kept.forgetting.needles import Matcher, words_of
from kept.forgetting.plan import Place, digest_of
from kept.index.chunking.properties import read_properties

_ITEM = re.compile(r"(?:[-*+]|\d+[.)])\s")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_CITED_LINES = re.compile(r"(sessions/[^\s()\[\]#]+\.jsonl)(?:#L(\d{1,9})(?:-L?(\d{1,9}))?)?")


@frozen
class NotePassage:
    """Paragraph, list item, row of a table, heading or property of a note."""

    start_line: int
    text: str
    is_property: bool = False

    @property
    def end_line(self) -> int:
        return self.start_line + self.text.count("\n")


def split_passages(text: str) -> list[NotePassage]:
    """Return the properties, also each item of one, paragraphs, list items, rows of tables and headings of a text."""
    lines = text.split("\n")
    properties = read_properties(lines).lines if lines[0].rstrip() == "---" else 0
    front = lines[: max(properties - 1, 0)]  # without its last line
    starts = [at for at, line in enumerate(front) if at and (not line[:1].isspace() or line.lstrip().startswith("- "))]
    spans = itertools.pairwise([*starts, len(front)]) if front else ()
    passages = [NotePassage(at + 1, "\n".join(front[at:end]), True) for at, end in spans]
    groups: list[list[tuple[int, str]]] = [[]]
    fenced = False
    for number, line in enumerate(lines[properties:], properties + 1):
        is_heading = not fenced and line.startswith("#")
        if not fenced and (not line.strip() or is_heading or line.startswith("|") or _ITEM.match(line)):
            groups.append([])
        if _FENCE.match(line):
            fenced = not fenced
        if fenced or line.strip():
            groups[-1].append((number, line))
        if is_heading:
            groups.append([])
    return [*passages, *(NotePassage(group[0][0], "\n".join(line for _, line in group)) for group in groups if group)]


# places


def find_in_note(path: str, text: str, matcher: Matcher, *, is_person: bool = False) -> list[Place]:
    """Return the passages of a note that match, or the whole note if its name does.

    A property that lists it among others stays without it; so does a list of names if it is a person.
    """
    if matcher.has_words(name_words(path)):
        return [whole_note(path, text)]
    if not matcher.matches(text):
        return []
    places = []
    for passage in matching_passages(text, matcher):
        may_stay = is_person or passage.is_property
        new = take_out(passage.text, matcher.matches, is_property=passage.is_property) if may_stay else None
        place = note_place(path, passage.start_line, passage.text, text)
        places.append(replace(place, new=new or "", is_property=passage.is_property))
    return places


def matching_passages(text: str, matcher: Matcher) -> list[NotePassage]:
    """Return the passages that match, and pairs of neighbours that only match together."""
    passages = split_passages(text)
    matching = {passage.start_line: passage for passage in passages if matcher.matches(passage.text)}
    rest = [passage for passage in passages if passage.start_line not in matching]
    for left, right in itertools.pairwise(rest):
        if matcher.matches(f"{left.text}\n{right.text}"):
            matching |= {left.start_line: left, right.start_line: right}
    return [matching[line] for line in sorted(matching)]


def name_words(path: str) -> str:
    """Return the name of a note as words."""
    return words_of(os.path.basename(path))


def note_place(path: str, start_line: int, text: str, note: str) -> Place:
    """Return the place of lines of a note, and how often it has them."""
    own, lines = text.split("\n"), note.split("\n")
    copies = sum(lines[at : at + len(own)] == own for at in range(len(lines) - len(own) + 1))
    citation = cite(path, start_line, start_line + len(own) - 1)
    return Place("note", path, citation, text, digest_of(text), start_line, len(own), copies=copies)


def whole_note(path: str, text: str) -> Place:
    return Place("note", path, path, text, digest_of(text), 1, text.count("\n") + 1, whole=True)


def cited_lines(text: str) -> list[tuple[str, int, int]]:
    """Return the lines of transcripts that a text cites: path, first and last line."""
    return [
        (match[1], int(match[2] or 1), int(match[3] or match[2] or 1_000_000_000))
        for match in _CITED_LINES.finditer(text)
    ]


# finding lines again, to remove them


def find_cuts(text: str, places: Iterable[Place]) -> tuple[dict[tuple[int, int], str], list[str]]:
    """Return the lines to cut, as first and last line, each with the text that takes their place, and citations of
    those whose text is no longer there.

    A text is looked for near the line where it was: lines above it may have been added or removed since. As many copies
    of it stay as were not chosen.
    """
    lines = text.split("\n")
    edits: dict[tuple[int, int], str] = {}
    missing: list[str] = []
    alike: dict[tuple[str, int], list[Place]] = {}
    for place in places:
        alike.setdefault((place.digest, place.lines), []).append(place)
    for (digest, count), group in alike.items():
        blocks = ("\n".join(lines[start - 1 : start - 1 + count]) for start in range(1, len(lines) - count + 2))
        starts = [start for start, block in enumerate(blocks, 1) if digest_of(block) == digest]
        to_stay = max(0, group[0].copies - len(group))
        for place in group:
            if len(starts) <= to_stay:
                missing.append(place.citation)
                continue
            _, start = min((abs(start - place.start_line), start) for start in starts)
            starts.remove(start)
            edits[start, start + count - 1] = place.new
    return edits, missing


# lists of names: one name can be taken out, and the others stay

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
    is_list = others and all(map(_is_name, items)) and (has_label or len(items) > 2)
    is_value = is_property and has_label and len(items) == len(others) + 1 and (others or _is_name(items[0]))
    if not is_list and not is_value:
        return None
    rest = ""
    for separator, item in zip(["", *parts[1::2]], items, strict=True):
        if not matches(item):
            rest += (separator if rest else "") + item
    return (line[:start] + rest + end).rstrip(" ")


def _is_name(item: str) -> bool:
    """Return whether an item of a list looks like a name or a link."""
    plain = re.sub(r"\s*\([^()]*\)\Z", "", item.strip().strip("\"'*_@"))
    if plain.startswith("[[") and plain.endswith("]]"):
        return True
    words = plain.split()
    return 0 < len(words) <= _LONGEST_NAME and all(not word[0].isalpha() or word[0].isupper() for word in words)

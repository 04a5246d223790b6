"""Statements of a note: its list items, table rows, paragraphs and headings, each with its validity."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from kept.base.values import frozen
from kept.notes.validity import Validity, may_be_marked, read_line

StatementKind = Literal["item", "row", "heading", "text"]
_ITEM = r"\s*(?:>\s?)*\s*(?:[-*+]|\d{1,9}[.)])\s+"
_PROPERTY = r"[^\s:][^:]*:(?:\s|$)|#|\s*$"
_HEADING = r"\s{0,3}(#{1,6})\s+(.*)"
_FENCE = r"\s*(```|~~~(?!~*\S+~~))"


@frozen
class Statement:
    """A list item, a row of a table, a paragraph or a heading. Lines are counted from 1."""

    first_line: int
    last_line: int
    kind: StatementKind
    text: str
    """Without its marks and without ~~."""
    validity: Validity | None = None
    """None if neither it nor a heading or item above it says when it holds."""


def read_statements(text: str, *, first_line: int = 1, headings: tuple[str, ...] = ()) -> list[Statement]:
    """Return the statements of a text, in order, without blank lines, rules and code.

    A text below a heading, and an item below another, holds no longer than that. ``headings`` are those above the text.
    """
    marks = _read_headings(headings, text) if any(map(may_be_marked, headings)) else None
    sections: list[tuple[int, Validity | None]] = [(0, marks)]
    parents: list[tuple[int, Validity]] = []
    statements = []
    for kind, start, lines in _groups(text.split("\n"), has_front_matter=first_line == 1):
        if kind == "heading":
            level = len(re.match(_HEADING, lines[0])[1])  # type: ignore[index]
            while len(sections) > 1 and sections[-1][0] >= level:
                sections.pop()
            parents.clear()
        indent = len(lines[0]) - len(lines[0].lstrip())
        while parents and (kind != "item" or parents[-1][0] >= indent):
            parents.pop()
        outer = parents[-1][1] if parents else sections[-1][1]
        plain, own = _read_lines(lines)
        validity = outer if own is None else own.within(outer)
        if kind == "heading":
            sections.append((level, validity))
        elif kind == "item" and validity is not None:
            parents.append((indent, validity))
        at = first_line + start
        statements.append(Statement(at, at + len(lines) - 1, kind, plain, validity))
    return statements


def read_statements_at(lines: Sequence[str], numbers: Iterable[int]) -> list[Statement]:
    """Return the statements that some lines belong to, regardless of the headings above them and of code."""
    statements: dict[int, Statement] = {}
    properties = _front_matter_lines(lines)
    for number in numbers:
        if number <= properties:
            continue
        first = last = number - 1
        while first > 0 and _kind_of(lines[first], "") == "more" and _kind_of(lines[first - 1], "") in ("item", "more"):
            first -= 1
        while last + 1 < len(lines) and _kind_of(lines[last + 1], "") == "more":
            last += 1
        for statement in read_statements("\n".join(lines[first : last + 1]), first_line=first + 1):
            statements[statement.first_line] = statement
    return list(statements.values())


def _read_headings(headings: tuple[str, ...], text: str) -> Validity | None:
    """Return the validity that the headings above a text give it. Those that are in the text are read there."""
    validity: Validity | None = None
    for heading in headings:
        own = read_line(heading).validity
        if own is not None and heading not in text:
            validity = own.within(validity)
    return validity


def _read_lines(lines: list[str]) -> tuple[str, Validity | None]:
    """Return the plain text of a statement, and its validity: struck if all its lines are, dated if any of them is."""
    marked = [read_line(line) for line in lines]
    texts = "\n".join(line.text for line in marked)
    known = [line.validity for line in marked if line.validity is not None]
    if not known:
        return texts, None
    is_struck = len(known) == len(lines) and all(validity.is_struck for validity in known)
    dated = next((validity for validity in reversed(known) if validity.since or validity.until or validity.was), None)
    last = dated or known[-1]
    merged = Validity(last.since, last.until, last.was, is_struck)
    return texts, None if merged == Validity() else merged


def _front_matter_lines(lines: Sequence[str]) -> int:
    """Return the number of lines of the properties at the top of a note, or 0. They are no statements."""
    if len(lines) < 2 or lines[0].rstrip() != "---" or not re.match(_PROPERTY, lines[1]):
        return 0
    ends = (at + 1 for at, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "..."))
    return next(ends, 0)


def _groups(lines: list[str], *, has_front_matter: bool) -> Iterator[tuple[StatementKind, int, list[str]]]:
    """Yield kind, first line (from 0) and lines of each statement."""
    properties = _front_matter_lines(lines) if has_front_matter else 0
    kind: StatementKind = "text"
    start, group = 0, list[str]()
    fence = ""
    for at, line in enumerate(lines[properties:], properties):
        begins = _kind_of(line, fence)
        if match := re.match(_FENCE, line):
            fence = "" if fence and line.strip().startswith(fence) else fence or match[1]
        if begins != "more" and group:
            yield kind, start, group
            group = []
        if begins == "none":
            continue
        if not group:
            kind, start = ("text" if begins == "more" else begins), at
        group.append(line)
        if begins in ("heading", "row"):
            yield kind, start, group
            group = []
    if group:
        yield kind, start, group


def _kind_of(line: str, fence: str) -> StatementKind | Literal["none", "more"]:
    """Return what a line begins. "none" is not part of a statement, and "more" continues one."""
    if fence or not line.strip() or re.match(_FENCE, line) or _is_rule(line):
        return "none"
    if re.match(_HEADING, line):
        return "heading"
    if line.lstrip().startswith("|"):
        return "row"
    return "item" if re.match(_ITEM, line) else "more"


def _is_rule(line: str) -> bool:
    """Return whether a line is a rule, or the line below the head of a table."""
    signs = set("".join(line.split()))
    return len(line.strip()) > 2 and (signs in ({"-"}, {"*"}, {"_"}, {"="}) or (signs <= set("|:-") and "-" in signs))

"""Validity of a line: what a person wrote about when it holds, in parentheses at its end or by striking it through.

    - Staging is on port 6000 (since 2026-11-03, was 5433)
    - ~~Staging is on port 5433~~ (until 2026-11-03)
    - The office is in Kiel (valid from 2025-01-01 to 2026-06-30)

The parentheses hold clauses, separated by commas or semicolons. Nothing else may be in them:

    since | from | as of | valid from | valid since  DATE   first day on which the line holds
    until | till | valid until | ended               DATE   first day on which it no longer holds
    to | through | -  DATE, after since or from             last day on which it holds
    was | formerly | previously | replaces           TEXT   what held before; always the last clause

A date is 2026-11-03, 2026/11/03, 3.11.2026, 3 November 2026, Nov 3, 2026, or without the day: 2026-11, November 2026,
2026. It may be a link to a daily note: [[2026-11-03]]. Parentheses of other contents, tags and block ids may follow.
Anything else is ordinary text: a line whose dates cannot be read holds, as every line without marks does.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from kept.base.values import frozen

SINCE = "valid since|valid from|valid as of|since|from|as of|starting|seit|ab|von|depuis|desde"
UNTIL = "valid until|valid till|until|till|ended|bis|jusqu'au|hasta"
WAS = "was|formerly|previously|replaces|replaced|before|war|vorher|était|era"
_FIRST_WORDS = frozenset(phrase.split()[0] for words in (SINCE, UNTIL, WAS) for phrase in words.split("|"))
_LONGEST = max(map(len, _FIRST_WORDS)) + 3
MAX_MARKED_CHARS = 2_000
"""A longer line is not searched for marks: they are for facts."""
_MAX_MARK_CHARS = 240
_MAX_TAIL_PARTS = 8
_NOISE = " \t.,;:!*_"
_THROUGH = "to|through|thru|–|—|-"
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    "|nov(?:ember)?|dec(?:ember)?)\\.?"
)
_DATE = (
    r"(?:\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?|\d{4}/\d{1,2}/\d{1,2}|\d{1,2}\.\d{1,2}\.\d{4}"
    rf"|\d{{1,2}}(?:st|nd|rd|th|\.)? {_MONTH},? \d{{4}}|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}|{_MONTH} \d{{4}}"
    r"|\d{4}-\d{2}|\d{4})"
)

_CLAUSE = (
    rf"\s*(?:(?:{SINCE})\s+(?P<start>{_DATE})(?:\s*(?P<range>{UNTIL}|{_THROUGH})\s*(?P<end>{_DATE}))?"
    rf"|(?:{UNTIL})\s+(?P<stop>{_DATE})"
    rf"|(?P<was>{WAS})\s+(?P<text>[^()]*(?:\([^()]*\)[^()]*)*)$)\s*(?:[,;]\s*(?:and\s+)?|$)"
)
_MARKER = r"\s*(?:>\s?)*\s*(?:(?:[-*+]|\d{1,9}[.)])\s+(?:\[.\]\s+)?|#{1,6}\s+)?"
_PART = r"\((?:[^()]|\([^()]*\))*\)\Z|(?<=[ \t])[#^][^ \t]*(?<!\))\Z"
"""What may come before or after marks: parentheses, a tag or a block id."""

ValidityState = Literal["holds", "ended", "later", "unknown"]


@frozen
class Validity:
    """Time in which a line holds, as far as it says so."""

    since: dt.date | None = None
    """First day on which it holds."""
    until: dt.date | None = None
    """First day on which it no longer holds."""
    was: str = ""
    """What held before, in the words of the line."""
    is_struck: bool = False

    @property
    def is_over(self) -> bool:
        """True if the line was struck through, or says when it ends."""
        return self.is_struck or self.until is not None

    def state(self, first: dt.date, last: dt.date | None = None, *, is_past: bool = False) -> ValidityState:
        """Return whether it holds on a day, or on any day of a period.

        A line that is struck through without a date no longer holds; when it ended is not known, so its state in the
        past (``is_past``) is "unknown".
        """
        if self.since is not None and self.since > (last or first):
            return "later"
        if self.until is not None:
            return "ended" if self.until <= first else "holds"
        return ("unknown" if is_past else "ended") if self.is_struck else "holds"

    def within(self, outer: Validity | None) -> Validity:
        """Return the validity of a line below a heading or an item that has one, too."""
        if outer is None:
            return self
        return Validity(
            since=max(filter(None, (self.since, outer.since)), default=None),
            until=min(filter(None, (self.until, outer.until)), default=None),
            was=self.was,
            is_struck=self.is_struck or outer.is_struck,
        )


@frozen
class MarkedLine:
    """A line taken apart."""

    text: str
    """The line without its marks and without ~~."""
    validity: Validity | None
    """None if the line says nothing about when it holds."""


def may_be_marked(text: str) -> bool:
    """Return whether a text may have marks. False is certain. A search asks this of every candidate."""
    # A single character is found much faster than a longer text, and most notes have none of these.
    if "~" in text and "~~" in text:
        return True
    at = text.find("(")
    while at >= 0:
        words = text[at + 1 : at + _LONGEST].split(None, 1)
        if words and words[0].lower() in _FIRST_WORDS:
            return True
        at = text.find("(", at + 1)
    return False


def read_line(line: str) -> MarkedLine:
    """Return a line without its marks, and what they say."""
    if len(line) > MAX_MARKED_CHARS or not may_be_marked(line):
        return MarkedLine(line, None)
    indent, body = split_marker(line)
    struck = _struck(body.rstrip(_NOISE))
    if struck is not None:  # the marks may be struck through, too
        marks = _find_marks(struck)
        return MarkedLine(indent + marks.without(struck), _as_struck(marks.validity))
    marks = _find_marks(body)
    struck = _struck(body[: marks.tail_at].rstrip(_NOISE))
    if struck is None:
        return MarkedLine(indent + marks.without(body), marks.validity)
    inner = _find_marks(struck)
    text = f"{indent}{inner.without(struck)}{marks.rest(body)}"
    return MarkedLine(text, _as_struck(marks.validity or inner.validity))


def _as_struck(validity: Validity | None) -> Validity:
    return replace(validity or Validity(), is_struck=True)


def split_marker(line: str) -> tuple[str, str]:
    """Return the marker of a line with its indentation (of a list, a quotation, a task, a heading), and the rest."""
    marker = re.match(_MARKER, line)[0]  # type: ignore[index]  # it may be empty
    return marker, line[len(marker) :]


def _struck(body: str) -> str | None:
    """Return what is struck through if that is the whole text, or else None."""
    body = body.strip()
    if len(body) > 4 and body.startswith("~~") and body.endswith("~~") and body.count("~~") == 2:
        return body[2:-2]
    return None


@frozen
class _Marks:
    """Marks of a text: their positions, and what they say."""

    tail_at: int
    """Start of what follows the statement itself: marks, tags, a block id, other parentheses."""
    text_end: int
    """The same, but parentheses before the marks belong to the statement."""
    validity: Validity | None = None
    start: int = 0
    end: int = 0

    def without(self, body: str) -> str:
        return body if self.validity is None else f"{body[: self.start].rstrip()}{_spaced(body[self.end :])}"

    def rest(self, body: str) -> str:
        """Return the tail of a text without its marks."""
        if self.validity is None:
            return _spaced(body[self.tail_at :])
        return _spaced(body[self.tail_at : self.start]) + _spaced(body[self.end :])


def _spaced(tail: str) -> str:
    tail = tail.strip()
    return tail if not tail or tail[0] in ".,;:!" else f" {tail}"


def _find_marks(body: str) -> _Marks:
    """Find the marks at the end of a text. Tags, block ids and other parentheses may be among them."""
    tail_at = text_end = len(body.rstrip())
    validity, start, end = None, 0, 0
    for _ in range(_MAX_TAIL_PARTS):
        part = _last_part(body, tail_at)
        if part is None:
            break
        tail_at = part[0]
        is_enclosed = body[tail_at] == "("
        clauses = _read_clauses(body[part[0] + 1 : part[1] - 1]) if is_enclosed else None
        if not is_enclosed and not body[part[1] : text_end].strip():
            text_end = tail_at
        if clauses is not None:
            end = part[1] if validity is None else end
            validity, start = clauses.within(validity), part[0]
    if validity is None or _is_reversed(validity):
        return _Marks(tail_at, len(body[:text_end].rstrip()))
    while start and end < len(body) and body[start - 1] == body[end] and body[end] in "*_":  # *(since 2026)*
        start, end = start - 1, end + 1
    return _Marks(min(tail_at, start), start, validity, start, end)


def _is_reversed(validity: Validity) -> bool:
    return validity.since is not None and validity.until is not None and validity.until < validity.since


def _last_part(body: str, end: int) -> tuple[int, int] | None:
    """Return start and end of the last part before ``end`` that may come after marks, or None for ordinary text."""
    stop = len(body[:end].rstrip(_NOISE))
    match = re.compile(_PART).search(body, max(0, stop - _MAX_MARK_CHARS), stop)
    return match.span() if match else None


def _read_clauses(text: str) -> Validity | None:
    """Return what parentheses say, or None unless all of it can be read."""
    text = text.replace("[[", "").replace("]]", "").strip()
    since = until = None
    was, at, clause = "", 0, re.compile(_CLAUSE, re.IGNORECASE)
    while at < len(text):
        match = clause.match(text, at)
        if match is None:
            return None
        at = match.end()
        if match["was"] is not None:
            was = match["text"].strip()
            continue
        days = [_read_date(match[name]) if match[name] else None for name in ("start", "end", "stop")]
        if any(match[name] and day is None for name, day in zip(("start", "end", "stop"), days, strict=True)):
            return None
        start, end, stop = days
        since = start[0] if start else since
        if end:  # "until" ends with the beginning of a day, "to" with its end
            until = end[0] if re.fullmatch(UNTIL, match["range"], re.IGNORECASE) else end[1]
        until = stop[0] if stop else until
    marks = Validity(since, until, was)
    return None if marks == Validity() else marks


def _read_date(text: str) -> tuple[dt.date, dt.date | None] | None:
    """Return the first day of a date, a month or a year, and the day after it; None if there is no such date."""
    numbers = [int(number) for number in re.findall(r"\d+", text)][:3]
    if name := re.search(r"[a-z]{3}", text.lower()):
        numbers = [numbers[-1], _MONTHS.index(name[0]) + 1, *numbers[:-1]]
    elif "." in text:
        numbers.reverse()
    year, month, day = (*numbers, 1, 1)[:3]
    try:
        first = dt.date(year, month, day)
    except ValueError:
        return None
    try:
        if len(numbers) == 3:
            return first, first + dt.timedelta(days=1)
        return first, dt.date(year + month // 12, month % 12 + 1, 1) if len(numbers) == 2 else dt.date(year + 1, 1, 1)
    except (ValueError, OverflowError):
        return first, None


# writing


def format_marks(*, since: dt.date | None = None, until: dt.date | None = None, was: str = "") -> str:
    """Return marks as they are written: (since 2026-11-03, was 5433)."""
    clauses = [f"since {since}" if since else "", f"until {until}" if until else "", f"was {was}" if was else ""]
    return f"({', '.join(filter(None, clauses))})"


def strike_line(line: str, until: dt.date) -> str:
    """Return a line struck through, with the day on which it ended after what its marks said before."""
    indent, body = split_marker(line)
    marks = _find_marks(body)
    text = body[: marks.text_end].strip().replace("~~", "")
    tail = body[marks.end :] if marks.validity else body[marks.text_end :]
    known = marks.validity or Validity()
    # A line that was to hold later never held.
    ended = format_marks(since=known.since, until=max(until, known.since or until), was=known.was)
    return f"{indent}~~{text}~~ {ended}{_spaced(tail)}"


# the statements of a note: its list items, table rows, paragraphs and headings

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
        if group and (begins != "more" or kind in ("heading", "row")):
            yield kind, start, group
            group = []
        if begins != "none":
            if not group:
                kind, start = ("text" if begins == "more" else begins), at
            group.append(line)
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

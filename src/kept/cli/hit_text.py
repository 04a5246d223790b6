"""Hits of a search as text: a header line and the lines that matched."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kept.cli.output import printable, style, use_colour
from kept.cli.terminal_layout import columns, cut, link, text_width, wrap
from kept.records import Grade, Hit, Occurrence, cite
from kept.search.hit_display import day_and_time, hit_headings, is_match, snippet_lines, split_matches, time_text
from kept.wording import plural

LINES_SHOWN = 8
_INDENT = 6
_MOST_OCCURRENCES = 3
_LINES_BEFORE = 2
"""Lines shown before the first match of a long text."""

_LEAD_STYLES: dict[Grade, dict[str, Any]] = {
    "strong": {"fg": "green", "bold": True},
    "likely": {"fg": "yellow", "bold": True},
    "weak": {"dim": True},
}

Locate = Callable[[Hit], str]
"""Function that returns the absolute path of the file that a hit is in."""


def hit_text(hit: Hit, words: Iterable[str], *, locate: Locate | None = None, max_lines: int = LINES_SHOWN) -> str:
    """Return a hit with the words of the query highlighted, and linked to its file if the terminal has links."""
    stems = [*words, *hit.other_words] if use_colour() else []
    lines = [row for line in snippet_lines(hit) for row in wrap(_plain(line), indent=_INDENT)]
    first, shown = _around_match(lines, stems, max_lines)
    more = len(lines) - first - len(shown)
    return "\n".join(
        [
            _header(hit, locate),
            *([style(f"{'':<{_INDENT}}…", dim=True)] if first else []),
            *(style(line, dim=True) if _has_ended(hit, line) else highlight(line, stems) for line in shown),
            *([style(f"{'':<{_INDENT}}… {plural(more, 'more line')}", dim=True)] if more else []),
            *_validity(hit),
            *_occurrences("newer than", hit.newer_than),
            *_occurrences("also in", hit.also_in),
            *(_further_line(passage, stems, locate) for passage in hit.further),
        ]
    )


def _has_ended(hit: Hit, line: str) -> bool:
    """Return whether a line of a hit is struck through, or says that it ended."""
    body = line.lstrip(" -*+>0123456789.)[]x|")
    if hit.validity and not hit.validity.holds and "(until " in line:
        return True
    held_then = hit.validity is not None and hit.validity.holds and hit.validity.until is not None
    return body.startswith("~~") and not held_then


def _validity(hit: Hit) -> list[str]:
    """Return a line about a fact that was replaced or that replaced another, or nothing."""
    validity = hit.validity
    if validity is None:
        return []
    if validity.holds:
        text = f"before: {', '.join(validity.before)}" if validity.before else ""
    elif validity.until:
        text = f"until {validity.until}" + (f", then {validity.replaced_by}" if validity.replaced_by else "")
    else:
        text = f"only since {validity.since}" if validity.since else "no longer holds"
    return [style(line, dim=True) for line in wrap(_plain(text), indent=_INDENT, hang=2)] if text else []


def _further_line(passage: Hit, stems: list[str], locate: Locate | None) -> str:
    """Return one line for a further passage of the note: its lines, score, last heading and first line that matches."""
    lines = cite("", passage.start_line, passage.end_line).removeprefix("#")
    shown = link(lines, locate(passage), passage.start_line) if locate else lines
    rows = [_plain(line).strip() for line in snippet_lines(passage)]
    matching = (row for row in rows if any(is_match(word, stems) for word in re.findall(r"\w+", row)))
    text = next(matching, rows[0] if rows else "") if stems else (rows[0] if rows else "")
    heading = hit_headings(passage)[-1:]
    about = ": ".join([*(_plain(name) for name in heading), text])
    lead = f"also {lines}  {passage.score:.2f}  "
    room = max(10, columns() - _INDENT - text_width(lead))
    about = cut(about, room)
    about = style(about, dim=True) if _has_ended(passage, text) else highlight(about, stems)
    line = (
        f"{'':<{_INDENT}}{style('also', dim=True)} {style(shown, fg='cyan')}"
        f"  {style(f'{passage.score:.2f}', dim=True)}  {about}"
    )
    return "\n".join([line, *_validity(passage)])


def _occurrences(lead: str, others: Sequence[Occurrence]) -> list[str]:
    """Return one line with citations, or nothing."""
    if not others:
        return []
    shown = [_plain(other.citation) for other in others[:_MOST_OCCURRENCES]]
    more = len(others) - len(shown)
    text = f"{lead} {', '.join(shown)}{f' and {more:,} more' if more else ''}"
    return [style(line, dim=True) for line in wrap(text, indent=_INDENT, hang=2)]


def parts_text(hit: Hit) -> str:
    width = max((len(part.name) for part in hit.parts), default=len("score"))
    rows = [(f"{part.name:<{width}} {part.value:+.3f}  ", part.detail) for part in hit.parts]
    lines = [line for lead, detail in rows for line in wrap(lead + detail, indent=_INDENT, hang=len(lead))]
    return style("\n".join([*lines, f"{'':<{_INDENT}}{'score':<{width}} {hit.score:+.3f}"]), dim=True)


def highlight(line: str, words: list[str]) -> str:
    """Return a line with the words highlighted, in any case, with any accents and usual endings."""
    pieces = split_matches(line, words)
    return "".join(style(piece, fg="yellow", bold=True) if matches else piece for piece, matches in pieces)


def _around_match(lines: list[str], words: list[str], max_lines: int) -> tuple[int, list[str]]:
    """Return the lines to show of a long text, and how many are before them."""
    if len(lines) <= max_lines + 1:  # saying that there is one more takes as much room as the line
        return 0, lines
    matching = (at for at, line in enumerate(lines) if any(is_match(word, words) for word in re.findall(r"\w+", line)))
    first = max(0, next(matching, 0) - _LINES_BEFORE) if words else 0
    first = min(first, len(lines) - max_lines)
    return first, lines[first : first + max_lines]


def _header(hit: Hit, locate: Locate | None) -> str:
    lead = time_text(str(hit.timestamp)) if hit.listed else f"{hit.score:.2f}"
    where = _plain(hit.citation)
    about = "  ".join(part for part in (_project(hit), " > ".join(hit_headings(hit)), _when(hit)) if part)
    room = columns() - text_width(lead) - text_width(where) - 4
    shown = style(where, fg="cyan", bold=True)
    if locate:
        shown = link(shown, locate(hit), hit.start_line)
    about, header = _plain(about), [style(lead, **_LEAD_STYLES[hit.grade]), shown]
    if hit.title and text_width(about) > room:  # the name of a transcript leaves little room
        title = cut(about, columns() - _INDENT)
        return "\n".join(["  ".join(header), style(f"{'':<{_INDENT}}{title}", dim=True)])
    about = cut(about, room)
    return "  ".join([*header, *([style(about, dim=True)] if about else [])])


def _project(hit: Hit) -> str:
    return f"project {hit.project}" if hit.project else ""


def _when(hit: Hit) -> str:
    """Return date and time, as far as the rest of the header lacks them."""
    if hit.listed:
        return ""
    day, time = day_and_time(hit)
    has_time = hit.source == "sessions" or time in hit.heading.split(" > ")
    return " ".join(part for part in ("" if day in hit.path else day, time if has_time else "") if part)


def _plain(text: str) -> str:
    return printable(text).replace("\t", "    ").replace("\n", " ").replace("\r", "")

"""Lines that fit a terminal: its width, wrapping, tables, diffs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kept.base.limits import one_line
from kept.base.listings import FileSummary
from kept.base.wording import size_text
from kept.cli.output import bold, cyan, printable, style

PIPE_COLUMNS = 10_000
"""In a pipe nothing is cut or wrapped: a program reads it."""
_MIN_TEXT_COLUMNS = 20


def columns() -> int:
    """Return the width of the terminal that standard output is, or PIPE_COLUMNS."""
    if not sys.stdout.isatty():
        return PIPE_COLUMNS
    try:
        named = int(os.environ.get("COLUMNS") or 0)
        return named or os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def text_width(text: str) -> int:
    """Return the columns that a text takes: two for each wide character."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def cut(text: str, room: int) -> str:
    """Return a text that takes at most ``room`` columns, with an ellipsis if it was longer."""
    if 2 * len(text) <= room or text_width(text) <= room:
        return text
    return text[: _fitting(text, room - 1)].rstrip() + "…" if room > 1 else ""


def wrap(text: str, *, indent: int, hang: int = 2) -> list[str]:
    """Return a line of text as lines that fit the terminal, indented; the lines after the first have ``hang`` more. In
    a pipe, it is one line."""
    lead, limit = " " * indent, max(columns() - indent, _MIN_TEXT_COLUMNS)
    lines: list[str] = []
    while text_width(text) > limit:
        end = max(_fitting(text, limit), 1)
        space = text.rfind(" ", 1, end + 1)
        if space > 0 and text[:space].strip():
            end = space
        lines.append(lead + text[:end].rstrip())
        text = text[end:].lstrip(" ")
        if len(lines) == 1:
            lead, limit = lead + " " * hang, max(limit - hang, _MIN_TEXT_COLUMNS)
    return [*lines, lead + text]


def _fitting(text: str, room: int) -> int:
    """Return how many characters fit into the columns."""
    if text.isascii():
        return max(0, room)
    width = 0
    for at, char in enumerate(text):
        width += text_width(char)
        if width > room:
            return at
    return len(text)


def layout_rows(rows: Sequence[Sequence[str]], *, coloured: int) -> list[str]:
    """Return a line for each row, its cells in columns, cut to half of the terminal, the last one to what is left. The
    one at ``coloured`` has a colour."""
    cells = [[cut(printable(cell).replace("\n", " "), columns() // 2) for cell in row[:-1]] for row in rows]
    lines = []
    for row, padded in zip(rows, _pad(cells, [False] * len(cells[0]) if cells else []), strict=True):
        room = max(columns() - sum(map(text_width, padded)) - 2 * len(padded), _MIN_TEXT_COLUMNS)
        padded[coloured] = cyan(padded[coloured])
        lines.append("  ".join([*padded, cut(printable(row[-1]).replace("\n", " "), room)]).rstrip())
    return lines


def _pad(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterator[list[str]]:
    """Yield the cells of each row as wide as their columns."""
    widths = [max(map(text_width, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        gaps = [" " * (width - text_width(cell)) for cell, width in zip(row, widths, strict=True)]
        yield [gap + cell if is_right else cell + gap for cell, gap, is_right in zip(row, gaps, right, strict=True)]


def file_lines(files: Sequence[FileSummary], *, with_time: bool) -> list[str]:
    """Return a line for each file: when, how large, which, and what it begins with."""
    width = max((len(size_text(file.size)) for file in files), default=0)
    rows = []
    for file in files:
        # The title of a daily note repeats its name, that of a conversation may be its first words.
        is_repeated = file.title in file.path or file.excerpt.startswith(file.title.removesuffix("…"))
        about = ": ".join(filter(None, ("" if is_repeated else file.title, file.excerpt)))
        when = str(file.timestamp)[: 16 if with_time else 10]
        rows.append((when, f"{size_text(file.size):>{width}}", file.path, about))
    return layout_rows(rows, coloured=2)


def table_text(headers: Sequence[str], rows: Iterable[Sequence[Any]], *, figures: bool = False) -> str:
    """Return rows below their headers, and numbers to the right; with ``figures``, all columns but the first. A line
    that does not fit the terminal is wrapped. Without rows, return nothing."""
    values = [*rows]
    if not values:
        return ""
    cells = [
        [f"{value:,}" if isinstance(value, int) else printable(one_line(str(value))) for value in row] for row in values
    ]
    right = [at > 0 if figures else all(isinstance(row[at], int) for row in values) for at in range(len(headers))]
    lines: list[str] = []
    for padded in _pad([headers, *cells], right):
        shown = wrap("  ".join(padded).rstrip(), indent=0, hang=4)
        lines += shown if lines else map(bold, shown)
    return "\n".join(lines)


def field_lines(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield names with their values beside them."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        first, *more = wrap(f"{name:<{width}}  {printable(one_line(value))}", indent=0, hang=width + 2)
        yield from (bold(first[:width]) + first[width:], *more)


def colour_diff(diff: str) -> str:
    """Return a diff in colour, if standard output is a terminal."""
    lines = []
    for line in diff.rstrip("\n").split("\n"):
        text = printable(line.removesuffix("\r"))
        if line.startswith(("---", "+++")):
            text = bold(text)
        elif colour := {"@": "cyan", "+": "green", "-": "red"}.get(line[:1]):
            text = style(text, fg=colour)
        lines.append(text)
    return "\n".join(lines)

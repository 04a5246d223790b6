"""Changes of notes for a terminal: a table of plain text, and diffs in colour."""

from __future__ import annotations

from collections.abc import Sequence

from kept.cli.output import local_time, style
from kept.cli.streams import printable
from kept.cli.terminal_layout import columns, cut, text_width
from kept.history.note_change import NoteChange
from kept.history.note_history import NoteHistory

SHORT_ID = 8
_LONGEST_PATH = 40
_LONGEST_AUTHOR = 30
_INDENT = 2
_LEAST_ROOM = 20
_STRUCK = "~~"
_MOST_LINES = 100
"""Changes whose versions are read to show a line of each."""


def change_lines(history: NoteHistory, changes: Sequence[NoteChange]) -> list[str]:
    """Return a line for each change: its id, when, what kind, which note, by whom, and what it wrote.

    On a narrow terminal, the text of a change goes on a line of its own.
    """
    written = _written_lines(history, changes)
    paths = [_one_line(change.path) for change in changes]
    authors = [cut(author_text(change), _LONGEST_AUTHOR) for change in changes]
    path_width = min(max(map(text_width, paths), default=0), _LONGEST_PATH)
    author_width = max(map(text_width, authors), default=0)
    lines = []
    for change, path, author in zip(changes, paths, authors, strict=True):
        shown_path = cut(path, path_width)
        lead = f"{change.id[:SHORT_ID]}  {local_time(change.when)}  {kind_text(change):<7}  "
        filled = style(shown_path, fg="cyan") + " " * (path_width - text_width(shown_path))
        room = columns() - text_width(lead) - path_width - author_width - 5
        by = author + " " * (author_width - text_width(author))
        about = about_text(change, written.get(change.id, ""))
        if room >= _LEAST_ROOM:
            shown = [f"{lead}{filled}  {by}  {cut(about, room)}".rstrip()]
        else:
            rest = f"{shown_path}  {author}"
            shown = [
                lead.rstrip(),
                *(f"{' ' * _INDENT}{cut(text, columns() - _INDENT)}" for text in (rest, about) if text),
            ]
        lines += [style(line, dim=True) if change.is_undone else line for line in shown]
    return lines


def kind_text(change: NoteChange) -> str:
    """Return what a change did. That another program made it is said where its author is."""
    if change.kind != "by_hand":
        return change.kind
    if change.before is None:
        return "add"
    return "remove" if change.after is None else "edit"


def author_text(change: NoteChange) -> str:
    return _one_line(change.by.description)


def about_text(change: NoteChange, line: str) -> str:
    """Return what a change is about: why it was made, or the line that it wrote."""
    if change.is_undone:
        return "(taken back)"
    if change.is_forgotten:
        return "(forgotten)"
    if change.undoes:
        return "takes back " + ", ".join(name[:SHORT_ID] for name in change.undoes)
    if change.was is not None:
        return _one_line(f"from {change.was}")
    if change.after is None:
        return ""
    return _one_line(change.why or line)


def _written_lines(history: NoteHistory, changes: Sequence[NoteChange]) -> dict[str, str]:
    """Return the line that each change wrote, by the id of the change."""
    shown = [change for change in changes if not about_text(change, "") and change.after is not None]
    return {change.id: _written_line(history.diff(change)) for change in shown[:_MOST_LINES]}


def _written_line(diff: str) -> str:
    """Return a line that a diff adds, or else removes. A line that is only struck through is the last choice."""
    lines = [line.rstrip("\r") for line in diff.split("\n") if not line.startswith(("---", "+++"))]
    added = [text for line in lines if line.startswith("+") and (text := line[1:].strip())]
    removed = [f"- {text}" for line in lines if line.startswith("-") and (text := line[1:].strip().removeprefix("- "))]
    new = [line for line in added if _STRUCK not in line]
    return next(iter(new or added or removed), "")


def colour_diff(diff: str) -> str:
    """Return a diff in colour, if standard output is a terminal."""
    return "\n".join(map(_colour_line, diff.rstrip("\n").split("\n")))


def _colour_line(line: str) -> str:
    text = printable(line.removesuffix("\r"))
    if line.startswith(("---", "+++")):
        return style(text, bold=True)
    if line.startswith("@@"):
        return style(text, fg="cyan")
    colour = {"+": "green", "-": "red"}.get(line[:1])
    return style(text, fg=colour) if colour else text


def _one_line(text: str) -> str:
    return printable(text).replace("\n", " ")

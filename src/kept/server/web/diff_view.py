"""Diffs and changes of notes, as pages show them."""

from __future__ import annotations

from kept.base.values import frozen
from kept.notes.history.note_change import NoteChange

MOST_LINES = 400
_KINDS = {"+": "added", "-": "removed", "@": "hunk", "\\": "aside"}
_VERBS = {
    "baseline": "first seen",
    "add": "extended",
    "edit": "edited",
    "remove": "removed",
    "rename": "renamed",
    "import": "imported",
    "undo": "taken back",
    "review": "accepted",
    "forget": "forgotten",
}


@frozen
class DiffLine:
    kind: str
    """Class of the line: added, removed, hunk, aside or same."""
    text: str


@frozen
class ChangeView:
    """A change with its diff, in words for people."""

    change: NoteChange
    diff: tuple[DiffLine, ...]
    more_lines: int

    @property
    def verb(self) -> str:
        change = self.change
        if change.before is None and change.kind in ("add", "edit", "by_hand"):
            return "created"
        if change.kind != "by_hand":
            return _VERBS.get(change.kind, change.kind)
        return "removed" if change.after is None else "edited"

    @property
    def can_undo(self) -> bool:
        change = self.change
        return not change.is_undone and not change.is_forgotten and change.kind not in ("baseline", "forget")


def cut_diff(diff: str) -> tuple[tuple[DiffLine, ...], int]:
    """Return the lines of a diff that a page shows, and how many more there are."""
    lines = split_diff(diff)
    return tuple(lines[:MOST_LINES]), max(0, len(lines) - MOST_LINES)


def split_diff(diff: str) -> list[DiffLine]:
    """Return the lines of a unified diff without its head, each with its class."""
    lines = diff.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    body = lines[2:] if lines[:1] and lines[0].startswith("--- ") else lines
    return [_line(line.removesuffix("\r")) for line in body]


def _line(line: str) -> DiffLine:
    kind = _KINDS.get(line[:1], "same")
    if kind == "hunk":
        first = line.partition("+")[2].partition(",")[0].partition(" ")[0]
        return DiffLine(kind, f"line {first}")
    return DiffLine(kind, line[1:] if line[:1] in "+- \\" else line)

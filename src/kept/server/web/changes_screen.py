"""Changes: who changed which note, when and why, as diffs, with undo. Also the lines of a diff for other screens."""

from __future__ import annotations

from itertools import islice

from starlette.responses import Response

from kept.base.values import frozen
from kept.notes.history.note_history import NoteChange
from kept.server.web.visit import Page, Screen, Visit

PER_PAGE = 20
MOST_LINES = 400
_KINDS = {"+": "added", "-": "removed", "\\": "aside"}
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
    lines = diff.removesuffix("\n").split("\n") if diff else []
    return [_line(line.removesuffix("\r")) for line in lines[2 if diff.startswith("--- ") else 0 :]]


def _line(line: str) -> DiffLine:
    match line[:1]:
        case "@":
            return DiffLine("hunk", f"line {line.partition('+')[2].partition(',')[0].partition(' ')[0]}")
        case "+" | "-" | "\\" | " " as sign:
            return DiffLine(_KINDS.get(sign, "same"), line[1:])
    return DiffLine("same", line)


def show_changes(visit: Visit) -> Response:
    """Show the changes of all notes or of one, newest first."""
    workspace, path = visit.memory.workspace, visit.path.get("path")
    if path is not None:
        path = workspace.cite(workspace.locate(path))
    by, session = visit.query.get("by", "").strip(), visit.query.get("session", "").strip()
    history = visit.memory.history  # one for all versions: it keeps those that were read
    first = (visit.page - 1) * PER_PAGE
    every = history.iter_changes(path=path, by=by or None, session=session or None)
    changes = list(islice(every, first, first + PER_PAGE + 1))
    return visit.render(
        "changes.html",
        path=path,
        views=[ChangeView(change, *cut_diff(history.diff(change))) for change in changes[:PER_PAGE]],
        has_next=len(changes) > PER_PAGE,
        by=by,
        session=session,
        is_recorded=visit.site.config.agent.history.enabled,
    )


def undo_change(visit: Visit) -> Response:
    """Take a change back. Later changes of other lines stay."""
    history, change = visit.memory.history, visit.form.get("change", "")
    for step in history.undo(change, dry_run=True).steps:
        for path in filter(None, (step.path, step.was)):
            visit.require_change(path)
    result = history.undo(change, author=visit.site.author, why="")
    paths = ", ".join(dict.fromkeys(step.path for step in result.steps))
    return visit.redirect(visit.back("/changes"), notice=f"Taken back: {paths}")


SCREEN = Screen(
    name="history",
    label="Changes",
    home="/changes",
    pages=(
        Page("/changes", show_changes, "read"),
        Page("/changes/{path:path}", show_changes, "read"),
        Page("/undo", undo_change, "write notes", ("POST",)),
    ),
    key="h",
)

"""Changes: who changed which note, when and why, as diffs, with undo."""

from __future__ import annotations

from itertools import islice
from urllib.parse import urlencode

from starlette.responses import Response

from kept.server.web.diff_view import ChangeView, cut_diff
from kept.server.web.visit import Page, Screen, Visit

PER_PAGE = 20


def show_changes(visit: Visit) -> Response:
    """Show the changes of all notes, newest first."""
    return _show(visit, None)


def show_note_changes(visit: Visit) -> Response:
    """Show the changes of one note."""
    memory = visit.memory
    return _show(visit, memory.workspace.cite(memory.workspace.locate(visit.path["path"])))


def _show(visit: Visit, path: str | None) -> Response:
    page = visit.number("page", 1, least=1, most=10_000)
    by, session = visit.query.get("by", "").strip(), visit.query.get("session", "").strip()
    history = visit.memory.history  # one for all versions: it keeps those that were read
    first = (page - 1) * PER_PAGE
    every = history.iter_changes(path=path, by=by or None, session=session or None)
    changes = list(islice(every, first, first + PER_PAGE + 1))
    filters = urlencode({name: value for name, value in (("by", by), ("session", session)) if value})
    return visit.render(
        "changes.html",
        path=path,
        views=[ChangeView(change, *cut_diff(history.diff(change))) for change in changes[:PER_PAGE]],
        page=page,
        has_next=len(changes) > PER_PAGE,
        by=by,
        session=session,
        filters=f"&{filters}" if filters else "",
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
        Page("/changes/{path:path}", show_note_changes, "read"),
        Page("/undo", undo_change, "write notes", ("POST",)),
    ),
    key="h",
)

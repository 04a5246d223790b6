"""Changes: who changed which note, when and why, as diffs, with undo."""

from __future__ import annotations

from itertools import islice

from starlette.responses import Response

from kept.server.web.visit import Page, Screen, Visit

PER_PAGE = 20


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
        changes=changes[:PER_PAGE],
        diff_of=history.diff,
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

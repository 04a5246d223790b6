"""Changes of notes as JSON, for scripts and for the web view."""

from __future__ import annotations

from typing import Any

from kept.history.note_change import NoteChange
from kept.history.undo import UndoResult
from kept.workspace.change_recorder import Author


def change_json(change: NoteChange, *, diff: str | None = None) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "id": change.id,
        "time": change.time,
        "path": change.path,
        "was": change.was,
        "kind": change.kind,
        "by": author_json(change.by),
        "why": change.why,
        "before": change.before,
        "after": change.after,
        "undoes": list(change.undoes),
        "undone": change.is_undone,
        "forgotten": change.forgotten,
        "machine": change.machine,
    }
    return shape if diff is None else {**shape, "diff": diff}


def author_json(by: Author) -> dict[str, str | None]:
    return {
        "agent": by.agent,
        "session": by.session,
        "tool": by.tool,
        "person": by.person,
        "client": by.client,
    }


def undo_json(result: UndoResult, *, dry_run: bool) -> dict[str, Any]:
    return {
        "undone": [change_json(change) for change in result.changes],
        "paths": [step.path for step in result.steps],
        "changes": [change_json(change) for change in result.recorded],
        "dryRun": dry_run,
        "degraded": list(result.degraded),
    }

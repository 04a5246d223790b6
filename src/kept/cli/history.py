"""kept history and kept undo: the changes of notes, and taking them back"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from kept.agent.tools.record_json import change_json, undo_json
from kept.base.limits import one_line
from kept.base.records import ENTRY_RULE
from kept.base.wording import plural
from kept.cli.options import kept_command, max_results_option, option, session_option, switch
from kept.cli.output import cyan, dim, echo, local_time, require_consent, style
from kept.cli.root import Globals, command_author
from kept.cli.terminal_layout import colour_diff, layout_rows
from kept.errors import UsageError
from kept.notes.history.line_changes import diff_versions
from kept.notes.history.note_history import NoteChange, NoteHistory
from kept.notes.history.undo import UndoResult

SHORT_ID = 8
_STRUCK = "~~"


def change_lines(history: NoteHistory, changes: Sequence[NoteChange]) -> list[str]:
    """Return a line for each change: its id, when, what kind, which note, by whom, and what it wrote."""
    rows = [
        (
            change.id[:SHORT_ID],
            local_time(change.when),
            kind_text(change),
            change.path,
            change.by.description,
            _about(history, change),
        )
        for change in changes
    ]
    lines = zip(layout_rows(rows, coloured=3), changes, strict=True)
    return [dim(line) if change.is_undone else line for line, change in lines]


def kind_text(change: NoteChange) -> str:
    """Return what a change did. That another program made it is said where its author is."""
    if change.kind != "by_hand":
        return change.kind
    if change.before is None:
        return "add"
    return "remove" if change.after is None else "edit"


def _about(history: NoteHistory, change: NoteChange) -> str:
    """Return what a change is about: why it was made, or the line that it wrote."""
    if change.is_undone:
        return "(taken back)"
    if change.is_forgotten:
        return "(forgotten)"
    if change.undoes:
        return "takes back " + ", ".join(name[:SHORT_ID] for name in change.undoes)
    if change.was is not None:
        return f"from {change.was}"
    return "" if change.after is None else change.why or _written_line(history.diff(change))


def _written_line(diff: str) -> str:
    """Return a line that a diff adds, or else removes. Rules, headings and struck lines are the last choice."""
    lines = [line.rstrip("\r") for line in diff.split("\n") if not line.startswith(("---", "+++"))]
    added = [text for line in lines if line.startswith("+") and (text := line[1:].strip())]
    removed = [f"- {text}" for line in lines if line.startswith("-") and (text := line[1:].strip().removeprefix("- "))]
    telling = [line for line in added if _STRUCK not in line and line != ENTRY_RULE and not line.startswith("#")]
    return next(iter(telling or added or removed), "")


@kept_command("history")
@click.argument("note", required=False)
@max_results_option(30, 1_000_000)
@option("--since", "WHEN", "Only changes from then on: 2h, 7d, yesterday, 2026-03-01.")
@option("--by", "NAME", "Only changes by this agent, tool, person or client.")
@session_option
@switch("--diff", "Show what each change did.")
def command(options: Globals, /, note: str | None, max_results: int, diff: bool, **filters: Any) -> None:
    """Show who changed which note, when and why, newest first.

    NOTE is the path of a note, or the id of a change. Edits by other programs are noticed by the next search or
    'kept index'.

    \b
    kept history --since 2h --diff
    kept history MEMORY.md
    """
    with options.memory() as memory:
        if note and re.fullmatch(rf"[0-9a-f]{{{SHORT_ID},16}}", note):
            diff, changes = True, memory.history.find_changes([note])
        else:
            changes = [*memory.history.changes(note, max_results=max_results + 1, **filters)]
        is_all, changes = len(changes) <= max_results, changes[:max_results]
        diffs = [memory.history.diff(change) if diff else None for change in changes]
        lines = [] if diff or options.as_json else change_lines(memory.history, changes)
    shapes = [change_json(change, diff=text) for change, text in zip(changes, diffs, strict=True)]
    for change, text in zip(changes, diffs, strict=True):
        if text is not None:
            why = [f"Why: {change.why}"] if change.why else []
            lines += [describe_change(change), *why, colour_diff(text), ""]
    if not changes:
        lines = ["No changes." if note or any(filters.values()) else "No note has changed since the history began."]
    options.report({"changes": shapes, "complete": is_all}, lines)
    if not is_all:
        options.hint("There are more; -n shows more of them.")


def describe_change(change: NoteChange) -> str:
    """Return what a change is in a line: its id, when, what kind, by whom, and whether it still stands."""
    lead = f"{style(change.id[:SHORT_ID], fg='yellow')}  {local_time(change.when)}  {kind_text(change)}"
    return f"{lead}  by {one_line(change.by.description)}{'  (taken back)' if change.is_undone else ''}"


@kept_command("undo")
@click.argument("changes", metavar="[CHANGE]...", nargs=-1)
@option("--session", "ID", "Take back all changes from this session.")
@option("--since", "WHEN", "Take back all changes from then on: 2h, yesterday, 2026-03-01T14:00.")
@option("--by", "NAME", "Take back all changes by this agent, tool, person or client.")
@switch("--dry-run", "Show what would change, and change nothing.")
@switch("--yes", "Do not ask.")
def undo_command(options: Globals, /, changes: tuple[str, ...], dry_run: bool, yes: bool, **filters: Any) -> None:
    """Undo changes of notes, even if later changes touched other lines.

    CHANGE is an id from 'kept history'. Without one and without options, the last change that Kept made is taken back.
    If a later change touched the same lines, nothing changes. An undo is a change too, and can be taken back.

    \b
    kept undo
    kept undo 3f2a91c0
    kept undo --by memory_write --since 2h --dry-run
    """
    if changes and any(filters.values()):
        raise UsageError("A change and options were given.", hint="Name changes, or use --session, --since or --by.")
    with options.memory() as memory:
        author = command_author("undo")
        plan = memory.history.undo(changes or None, author=author, dry_run=True, **filters)
        lines = change_lines(memory.history, plan.changes)
        if plan.changes and not dry_run and not yes:
            if not sys.stdin.isatty():
                hint = "Add --yes, or see what it does with --dry-run."
                raise UsageError("An undo changes notes and asks first.", hint=hint)
            echo("\n".join(lines), err=True)
            require_consent(f"Take back {plural(len(plan.changes), 'change')}?")
        is_final = dry_run or not plan.changes
        result = plan if is_final else memory.history.undo([entry.id for entry in plan.changes], author=author)
    shape = undo_json(result, dry_run=dry_run)
    options.report(shape, _undo_lines(result, lines if dry_run else []), degraded=result.degraded)
    if result.recorded:
        ids = " ".join(entry.id[:SHORT_ID] for entry in result.recorded)
        options.hint(f"To take that back: kept undo {ids}")


def _undo_lines(result: UndoResult, planned: list[str]) -> Iterator[str]:
    """Yield what an undo did, or what it would do to the ``planned`` changes."""
    if not result.changes:
        yield "Kept changed nothing that could be taken back."
        yield "'kept history' lists changes by other programs, too; 'kept undo ID' takes one of them back."
    elif planned:
        yield from (*planned, "")
        for step in result.steps:
            before = step.after if step.was else step.before
            yield colour_diff(diff_versions(before, step.after, step.was or step.path, step.path))
    else:
        changed = ", ".join(cyan(step.path) for step in result.steps)
        yield f"Took back {plural(len(result.changes), 'change')} in {changed or 'no note'}."

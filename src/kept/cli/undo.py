"""kept undo"""

from __future__ import annotations

import sys

import click

from kept.cli.change_text import SHORT_ID, change_lines, colour_diff
from kept.cli.command_author import command_author
from kept.cli.output import echo, json_option, print_json, require_consent, style, warn_all
from kept.cli.root import Globals
from kept.errors import UsageError
from kept.history.line_changes import diff_versions
from kept.history.undo import UndoResult
from kept.wording import plural


@click.command("undo")
@click.argument("changes", metavar="[CHANGE]...", nargs=-1)
@click.option("--session", metavar="ID", help="Take back all changes from this session.")
@click.option("--since", metavar="WHEN", help="Take back all changes from then on: 2h, yesterday, 2026-03-01T14:00.")
@click.option("--by", metavar="NAME", help="Take back all changes by this agent, tool, person or client.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def command(
    options: Globals,
    changes: tuple[str, ...],
    session: str | None,
    since: str | None,
    by: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Take back changes of notes, also if later changes touched other lines.

    CHANGE is an id from 'kept history'. Without one and without options, the last change that Kept made is taken back.
    If a later change touched the same lines, nothing changes. An undo is a change too, and can be taken back.
    """
    if changes and (session or since or by):
        raise UsageError("A change and options were given.", hint="Name changes, or use --session, --since or --by.")
    with options.memory() as memory:
        author = command_author(memory.config.agent_id, "undo")
        plan = memory.history.undo(changes or None, session=session, since=since, by=by, author=author, dry_run=True)
        lines = change_lines(memory.history, plan.changes)
        if plan.changes and not dry_run and not yes:
            _ask(lines, len(plan.changes))
        is_final = dry_run or not plan.changes
        result = plan if is_final else memory.history.undo([entry.id for entry in plan.changes], author=author)
    if as_json:
        from kept.tools.record_json import undo_json

        print_json(undo_json(result, dry_run=dry_run))
        return
    warn_all(result.degraded)
    if not result.changes:
        echo("There is nothing to take back.")
    elif dry_run:
        _show(lines, result)
    else:
        ids = " ".join(entry.id[:SHORT_ID] for entry in result.recorded)
        changed = ", ".join(style(step.path, fg="cyan") for step in result.steps)
        echo(f"Took back {plural(len(result.changes), 'change')} in {changed or 'no note'}.")
        if ids:
            echo(style(f"To take that back: kept undo {ids}", dim=True), err=True)


def _ask(lines: list[str], count: int) -> None:
    if not sys.stdin.isatty():
        raise UsageError("An undo changes notes and asks first.", hint="Add --yes, or see what it does with --dry-run.")
    for line in lines:
        echo(line, err=True)
    require_consent(f"Take back {plural(count, 'change')}?")


def _show(lines: list[str], result: UndoResult) -> None:
    for line in lines:
        echo(line)
    echo()
    for step in result.steps:
        before = step.after if step.was else step.before
        echo(colour_diff(diff_versions(before, step.after, step.was or step.path, step.path)))

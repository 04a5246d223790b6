"""kept history"""

from __future__ import annotations

import click

from kept.cli.change_text import SHORT_ID, author_text, change_lines, colour_diff, kind_text
from kept.cli.output import echo, json_option, local_time, max_results_option, print_json, style, warn_all
from kept.cli.root import Globals
from kept.history.note_change import NoteChange
from kept.memory import Memory
from kept.wording import plural


@click.command("history")
@click.argument("note", required=False)
@max_results_option(30, 1_000_000)
@click.option("--since", metavar="WHEN", help="Only changes from then on: 2h, 7d, yesterday, 2026-03-01.")
@click.option("--by", metavar="NAME", help="Only changes by this agent, tool, person or client.")
@click.option("--session", metavar="ID", help="Only changes from this session.")
@click.option("--diff", is_flag=True, help="Show what each change did.")
@click.option("--git", "use_git", is_flag=True, help="Commit the changes that are not committed yet, in git.")
@json_option
@click.pass_obj
def command(
    options: Globals,
    note: str | None,
    max_results: int,
    since: str | None,
    by: str | None,
    session: str | None,
    diff: bool,
    use_git: bool,
    as_json: bool,
) -> None:
    """Show who changed which note, when and why, newest first.

    NOTE is the path of a note, or the id of a change. Edits by other programs are noticed by the next search or
    'kept index'.
    """
    with options.memory() as memory:
        if use_git:
            _commit(memory, as_json=as_json)
            return
        changes, total = _read(memory, note, since, by, session, max_results)
        shows_diffs = diff or bool(note and changes and _is_id(note))
        diffs = [memory.history.diff(change) for change in changes] if shows_diffs else None
        lines = [] if shows_diffs or as_json else change_lines(memory.history, changes)
    if as_json:
        from kept.tools.record_json import change_json

        shapes = [change_json(change, diff=diffs[at] if diffs else None) for at, change in enumerate(changes)]
        print_json({"changes": shapes, "complete": total is not None})
        return
    _show(changes, diffs, lines)
    if not changes:
        echo("No changes." if note or since or by or session else "No note has changed since the history began.")
    elif total is None:
        echo(style("There are more; -n shows more of them.", dim=True), err=True)


def _read(
    memory: Memory, note: str | None, since: str | None, by: str | None, session: str | None, limit: int
) -> tuple[list[NoteChange], int | None]:
    """Return the changes to show, and their number if these are all."""
    if note and _is_id(note):
        return [memory.history.get_change(note)], 1
    changes = list(memory.history.changes(note, since=since, by=by, session=session, max_results=limit + 1))
    return changes[:limit], len(changes) if len(changes) <= limit else None


def _is_id(text: str) -> bool:
    return SHORT_ID <= len(text) <= 16 and all(char in "0123456789abcdef" for char in text)


def _show(changes: list[NoteChange], diffs: list[str] | None, lines: list[str]) -> None:
    if diffs is None:
        for line in lines:
            echo(line)
        return
    for change, diff in zip(changes, diffs, strict=True):
        lead = f"{style(change.id[:SHORT_ID], fg='yellow')}  {local_time(change.when)}  {kind_text(change)}"
        state = "  (taken back)" if change.is_undone else ""
        echo(f"{lead}  by {author_text(change)}{state}")
        if change.why:
            echo(f"Why: {change.why}")
        echo(colour_diff(diff))
        echo()


def _commit(memory: Memory, *, as_json: bool) -> None:
    from kept.history.git_commits import commit_changes

    result = commit_changes(memory.history)
    if as_json:
        print_json({"commits": list(result.commits), "degraded": list(result.degraded)})
        return
    warn_all(result.degraded)
    echo(f"{plural(len(result.commits), 'commit')}." if result.commits else "Everything is committed.")

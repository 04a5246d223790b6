"""kept review [list | accept | reject]: what agents wrote"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import click

from kept.agent.tools.record_json import review_item_json, review_result_json
from kept.cli.history import SHORT_ID
from kept.cli.options import kept_command, session_option, switch
from kept.cli.output import cyan, local_time, printable, style
from kept.cli.root import Globals, command_author
from kept.cli.terminal_layout import colour_diff
from kept.errors import KeptError, NoteConflict, NotFound, UsageError
from kept.notes.review_queue import ReviewItem, ReviewQueue, ReviewResult

_NOTHING = "Nothing waits for review."


@click.group("review", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Decide about what agents wrote or propose to write: list, accept or reject it.

    Alone, it lists. The setting review.agent_writes says whether agents write at once, or only when you accept.
    What they write to files of the system prompt, such as SOUL.md, always waits here.

    \b
    kept review list --diff
    kept review accept --session 5054abcd
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_waiting)


@kept_command("list", command)
@session_option
@switch("--diff", "Show what each change does.")
def list_waiting(options: Globals, session: str | None = None, diff: bool = False) -> None:
    """List the changes that wait for review, oldest first."""
    with options.memory() as memory:
        waiting = memory.review.list(session=session)
        shapes = [review_item_json(item, memory.review.preview(item)) for item in waiting.items]
        shape = {"waiting": shapes, "degraded": list(waiting.degraded)}
        lines = (line for item in waiting.items for line in _item_lines(memory.review, item, diff=diff))
        options.report(shape, lines if waiting.items else _NOTHING, degraded=waiting.degraded)


def _add_decision(name: str, text: str) -> None:
    """Add the command that decides about items: it is called like the method of the queue."""

    @command.command(name, help=f"{text}\n\nID is an id from 'kept review list', or the beginning of one.")
    @click.argument("ids", metavar="[ID]...", nargs=-1)
    @session_option
    @switch("--all", "Everything that waits.", "all_waiting")
    @click.pass_obj
    def run(options: Globals, ids: tuple[str, ...], session: str | None, all_waiting: bool) -> None:
        with options.memory() as memory:
            author = command_author("review")
            chosen = _choose(memory.review, ids, session, all_waiting)
            if name == "reject":  # the newest first: an older change may be in the way of its undo
                chosen.reverse()
            decide = memory.review.accept if name == "accept" else memory.review.reject
            results = _decide(chosen, lambda item_id: decide(item_id, author=author))
        _report(options, *results)


_add_decision("accept", "Write proposals.")
_add_decision("reject", "Drop proposals.")


def _choose(queue: ReviewQueue, ids: Sequence[str], session: str | None, all_waiting: bool) -> list[str]:
    """Return the ids of the items to decide about, oldest first. Raise NotFound before anything changes."""
    if sum((bool(ids), session is not None, all_waiting)) != 1:
        raise UsageError("Say which changes.", hint="Name ids from 'kept review list', or use --session ID or --all.")
    if ids:
        return list(dict.fromkeys(queue.get(item_id).id for item_id in ids))
    chosen = [item.id for item in queue.list(session=session).items]
    if session is not None and not chosen:
        raise NotFound(f"Nothing from the session '{session}' waits for review.")
    return chosen


def _decide(
    chosen: Sequence[str], decide: Callable[[str], ReviewResult]
) -> tuple[list[ReviewResult], list[tuple[str, KeptError]]]:
    """Return the results, and the items whose notes have changed meanwhile. One alone raises its conflict."""
    results: list[ReviewResult] = []
    conflicts: list[tuple[str, KeptError]] = []
    for item_id in chosen:
        try:
            results.append(decide(item_id))
        except NoteConflict as exc:
            if len(chosen) == 1:
                raise
            conflicts.append((item_id, exc))
    return results, conflicts


def _report(options: Globals, results: list[ReviewResult], conflicts: list[tuple[str, KeptError]]) -> None:
    shapes = [{"id": item_id, "reason": exc.message} for item_id, exc in conflicts]
    shape = {"decided": [review_result_json(result) for result in results], "conflicts": shapes}
    done = [
        (result.action.capitalize(), result.item.id[:SHORT_ID], cyan(printable(result.item.path))) for result in results
    ]
    degraded = [reason for result in results for reason in result.degraded]
    degraded += [f"{item_id[:SHORT_ID]} is in conflict, and waits: {exc.message}" for item_id, exc in conflicts]
    lines = [f"{action} {item_id}: {path}" for action, item_id, path in done]
    options.report(shape, lines or ([] if conflicts else _NOTHING), degraded=degraded)
    if conflicts:
        raise click.exceptions.Exit(4)


def _item_lines(queue: ReviewQueue, item: ReviewItem, *, diff: bool) -> Iterator[str]:
    by = item.by
    session = f"  session {by.session[:SHORT_ID]}" if by.session else ""
    lead = f"{style(item.id[:SHORT_ID], fg='yellow')}  {local_time(item.when)}  {cyan(item.path)}"
    author = ", ".join(filter(None, (by.client, by.tool or by.agent))) or "an agent"
    yield printable(f"{lead}  proposed, not written yet  by {author}{session}").replace("\n", " ")
    if diff:
        preview = queue.preview(item)
        if item.why:
            yield f"Why: {printable(item.why)}"
        if item.addition.replaces:
            yield f"Replaces: {printable(item.addition.replaces)}"
        yield colour_diff(preview.diff) if preview.diff else printable(item.addition.text)
        if preview.notice:
            yield style(f"{'Conflict: ' if preview.is_conflict else ''}{preview.notice}", fg="yellow")
        yield ""

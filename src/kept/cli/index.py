"""kept index: update the index once, or keep it current"""

from __future__ import annotations

import queue
import signal
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

import click

from kept.agent.tools.record_json import to_json
from kept.base.limits import one_line
from kept.base.reports import SyncReport
from kept.base.wording import plural
from kept.cli.background_service import Action, manage_service, service_options
from kept.cli.options import switch
from kept.cli.output import echo, json_text, progress_bar, warn_all
from kept.cli.root import Globals
from kept.errors import UsageError

if TYPE_CHECKING:
    from kept.notes.survey import LeftOut
    from kept.server.live import LiveEvent

_REASONS = {
    "ignored": "named in .gitignore or .keptignore",
    "link": "a symbolic link",
    "ending": "its ending is not in memory_search.extensions",
    "layout": "outside memory/; the layout 'vault' includes it",
}


@click.command("index")
@switch("--force", "Rebuild the index from every note.")
@switch("--watch", "Keep the index current while notes change, until interrupted.")
@service_options
@switch("-v", "List files of the workspace that are not indexed, and why.", "--verbose")
@click.pass_context
def command(ctx: click.Context, force: bool, watch: bool, service: Action | None, verbose: bool) -> None:
    """Update the index from notes and conversations.

    If several processes watch the same index, one does the work and another takes over when it ends. With --watch
    --json, each line is an event.

    \b
    kept index
    kept index --watch
    kept index --install
    """
    options: Globals = ctx.obj
    if (watch or service) and (force or verbose):
        raise UsageError("--watch and --install go alone.", hint="Run 'kept index' with the other options before.")
    if service:
        manage_service(options, ("index", "--watch"), service)
        return
    if watch:
        _watch(options)
        return
    with options.memory() as memory, progress_bar("Indexing") as progress:
        report = memory.sync(force=force, progress=progress)
        left_out: tuple[LeftOut, ...] = ()
        if verbose:
            from kept.notes.survey import survey_workspace

            left_out = survey_workspace(memory.workspace, max_bytes=memory.settings.max_file_bytes).left_out
    not_indexed = (f"Not indexed: {one_line(entry.path)} ({_REASONS[entry.reason]})" for entry in left_out)
    shape = to_json(report) | ({"leftOut": to_json(left_out)} if verbose else {})
    options.report(shape, chain(report_lines(report), not_indexed))


def report_lines(report: SyncReport) -> Iterator[str]:
    """Yield what a sync did, after notes about what it could not do."""
    rebuilt = [f"Rebuilt: {report.rebuilt.rstrip('.')}."] if report.rebuilt else []
    warn_all([*rebuilt, *(f"{problem.path}: {problem.reason}" for problem in report.problems), *report.failures])
    if report.indexed or report.removed:
        parts = [f"{plural(report.indexed, 'file')} indexed"]
        if report.removed:
            parts.append(f"{report.removed:,} removed")
        parts.append(f"{plural(report.embedded, 'text')} embedded, {report.cached:,} from the cache")
    else:
        parts = ["Nothing changed"]
    parts.append(f"{plural(report.files, 'file')} and {plural(report.chunks, 'chunk')} in all")
    yield "; ".join(parts) + f" ({report.took_ms / 1000:.2f} s)."


# watching


def _watch(options: Globals) -> None:
    from kept.server.live import LiveIndex

    events: queue.SimpleQueue[LiveEvent | None] = queue.SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: events.put(None))
    with options.memory() as memory:
        memory.index_service.require_usable()
        with LiveIndex(memory, watch=True, listener=events.put):
            for event in iter(events.get, None):
                if options.as_json:
                    optional = {"message": event.message, "report": to_json(event.report)}
                    shape = {"event": event.kind, "state": to_json(event.state)}
                    echo(json_text(shape | {name: value for name, value in optional.items() if value}))
                else:
                    _show(event, memory.workspace.root)


def _show(event: LiveEvent, folder: str) -> None:
    if event.kind == "role" and event.state.role == "standby":
        echo(f"Standing by: process {event.state.leader_pid or '?'} keeps the index current.", err=True)
    elif event.report is None and event.message:
        echo(event.message if event.kind == "role" else f"Note: {event.message}", err=True)
    if event.report is not None:
        echo("\n".join(report_lines(event.report)))
    if event.kind == "synced" and event.state.syncs == 1:  # scripts wait for this line
        echo(f"Watching {folder}; stop with Ctrl-C.", err=True)

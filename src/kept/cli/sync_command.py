"""kept sync"""

from __future__ import annotations

import queue
import signal
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from kept.cli.output import echo, json_option, json_text, print_json, progress_bar, warn
from kept.cli.root import Globals
from kept.errors import KeptError, UsageError
from kept.limits import printable_line
from kept.wording import plural

if TYPE_CHECKING:
    from kept.automatic_sync import SyncEvent
    from kept.config import Config
    from kept.git_sync.git_sync import GitSync
    from kept.git_sync.sync_report import GitSyncReport, GitSyncStatus

_SHOWN = 20


@click.command("sync")
@click.option("--init", "url", metavar="URL", help="Connect the workspace to a git repository, then synchronise.")
@click.option("--status", "show_status", is_flag=True, help="Show what waits to be sent or received; change nothing.")
@click.option("--watch", is_flag=True, help="Synchronise regularly, until interrupted.")
@click.option("--dry-run", is_flag=True, help="Fetch, and show what a sync would do.")
@click.option("--merge-rewritten", is_flag=True, help="Merge although the branch of the remote was rewritten.")
@click.option("--remove-many", is_flag=True, help="Allow to remove a large part of the files for everybody.")
@json_option
@click.pass_obj
def command(
    options: Globals,
    url: str | None,
    show_status: bool,
    watch: bool,
    dry_run: bool,
    merge_rewritten: bool,
    remove_many: bool,
    as_json: bool,
) -> None:
    """Synchronise the notes with a team, over git: commit, fetch, merge and push.

    Both versions of what two machines changed at once are kept. Nothing of yours is touched: with staged files, on
    another branch or during a rebase, the command refuses.
    """
    if sum((show_status, watch, dry_run)) > 1:
        raise UsageError("--status, --watch and --dry-run exclude each other.", hint="Choose one of them.")
    config = options.load_finished().config
    sync = open_sync(config)
    if url is not None:
        _connect(sync, url, as_json=as_json)
    if show_status:
        status = sync.status()
        print_json(status_json(status)) if as_json else _show_status(status)
    elif watch:
        _watch(sync, as_json=as_json)
    elif dry_run:
        _print(sync.preview(), as_json=as_json)
    else:
        with nullcontext() if as_json else progress_bar("Merging") as progress:
            report = sync.run(merge_rewritten=merge_rewritten, remove_many=remove_many, progress=progress)
        _print(report, as_json=as_json)


def open_sync(config: Config) -> GitSync:
    from kept.clock import SystemClock
    from kept.git_sync.git_sync import GitSync
    from kept.workspace.workspace import Workspace

    return GitSync(config, Workspace.of(config), SystemClock())


def _connect(sync: GitSync, url: str, *, as_json: bool) -> None:
    from kept.git_sync.sync_setup import connect_workspace

    is_new = connect_workspace(sync, url)
    if not as_json:
        sentence = "Made a git repository in" if is_new else "Connected the git repository in"
        echo(f"{sentence} {sync.workspace.root}.", err=True)


def _watch(sync: GitSync, *, as_json: bool) -> None:
    from kept.git_sync.sync_loop import SyncLoop

    events: queue.SimpleQueue[GitSyncReport | KeptError | None] = queue.SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: events.put(None))
    sync.require_ready()
    if not as_json:
        echo(f"Synchronising every {sync.settings.interval_s:g} seconds; stop with Ctrl-C.", err=True)
    with SyncLoop(sync, events.put):
        while (event := events.get()) is not None:
            if isinstance(event, KeptError):
                warn(str(event))
            elif as_json:
                echo(json_text(report_json(event)))
            else:
                _show(event)


# output


def _print(report: GitSyncReport, *, as_json: bool) -> None:
    print_json(report_json(report)) if as_json else _show(report)


def _show(report: GitSyncReport) -> None:
    for problem in report.problems:
        warn(f"{problem.path}: {problem.reason}")
    for path in report.conflicts[:_SHOWN]:
        warn(f"{printable_line(path)}: two machines changed the same lines; both versions are there")
    echo(report_line(report))


def event_line(event: SyncEvent) -> str:
    """Return what an automatic sync did, or why it failed, in a line."""
    return str(event) if isinstance(event, KeptError) else report_line(event)


def report_line(report: GitSyncReport) -> str:
    """Return what a sync did, in a line."""
    would = "would be " if report.dry_run else ""
    parts = [f"{plural(len(report.committed), 'file')} {would}committed"] if report.committed else []
    parts += [f"{plural(len(report.pulled), 'file')} {would}received"] if report.pulled else []
    parts += [f"{plural(len(report.merged), 'file')} {would}merged"] if report.merged else []
    if report.conversations_sent:
        parts.append(f"{plural(report.conversations_sent, 'conversation')} sent")
    if report.conversations_received:
        parts.append(f"{plural(report.conversations_received, 'conversation')} received")
    if not parts:
        parts = ["Pushed" if report.pushed and not report.dry_run else "Nothing changed"]
    elif report.pushed and not report.dry_run:
        parts.append("pushed")
    return f"{'; '.join(parts)} ({printable_line(report.remote)}, {report.branch})."


def _show_status(status: GitSyncStatus) -> None:
    for problem in status.problems:
        warn(f"{problem.path}: {problem.reason}")
    echo(f"Remote:     {printable_line(status.remote)}, branch {status.branch}")
    echo(f"Machine:    {status.host}")
    echo(f"To commit:  {plural(len(status.changed), 'file')}")
    for path in status.changed[:_SHOWN]:
        echo(f"  {printable_line(path)}")
    if len(status.changed) > _SHOWN:
        echo(f"  {len(status.changed) - _SHOWN:,} more; --json shows them all.")
    echo(f"To send:    {plural(status.ahead, 'commit')}")
    echo(f"To receive: {plural(status.behind, 'commit')}, as of the last fetch")
    if status.merging:
        echo("A merge was interrupted. The next sync goes on with it.")
    echo(f"Automatic:  {'on' if status.automatic else 'off (sync.git.enabled)'}")


def report_json(report: GitSyncReport) -> dict[str, Any]:
    from kept.tools.record_json import to_json

    shape: dict[str, Any] = to_json(report)
    return shape


def status_json(status: GitSyncStatus) -> dict[str, Any]:
    from kept.tools.record_json import to_json

    shape: dict[str, Any] = to_json(status)
    return shape

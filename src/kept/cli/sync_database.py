"""kept sync, for a workspace whose files are in the database of a team"""

from __future__ import annotations

import queue
import signal
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from kept.cli.output import echo, json_text, print_json, progress_bar, warn
from kept.errors import KeptError
from kept.limits import printable_line
from kept.wording import plural

if TYPE_CHECKING:
    from kept.config import Config
    from kept.team_files.files_report import TeamFilesReport, TeamFilesStatus
    from kept.team_files.team_files import TeamFiles

_SHOWN = 20


def open_files(config: Config) -> TeamFiles:
    from kept.clock import SystemClock
    from kept.team_files.team_files import TeamFiles
    from kept.workspace.workspace import Workspace

    return TeamFiles(config, Workspace.of(config), SystemClock())


def sync_files(
    config: Config, *, show_status: bool, watch: bool, dry_run: bool, remove_many: bool, as_json: bool
) -> None:
    files = open_files(config)
    if show_status:
        status = files.status()
        print_json(_json(status)) if as_json else _show_status(status)
    elif watch:
        _watch(files, as_json=as_json)
    elif dry_run:
        _print(files.preview(), as_json=as_json)
    else:
        with nullcontext() if as_json else progress_bar("Receiving") as progress:
            report = files.run(remove_many=remove_many, progress=progress)
        _print(report, as_json=as_json)


def _watch(files: TeamFiles, *, as_json: bool) -> None:
    from kept.team_files.files_loop import FilesLoop

    events: queue.SimpleQueue[TeamFilesReport | KeptError | None] = queue.SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: events.put(None))
    files.workspace.require()
    if not as_json:
        echo(f"Synchronising with {files.tables.database.schema}; stop with Ctrl-C.", err=True)
    with FilesLoop(files, events.put):
        while (event := events.get()) is not None:
            if isinstance(event, KeptError):
                warn(str(event))
            elif as_json:
                echo(json_text(_json(event)))
            else:
                _show(event)


def _print(report: TeamFilesReport, *, as_json: bool) -> None:
    print_json(_json(report)) if as_json else _show(report)


def _show(report: TeamFilesReport) -> None:
    for problem in report.problems:
        warn(f"{problem.path}: {problem.reason}")
    for path in report.conflicts[:_SHOWN]:
        warn(f"{printable_line(path)}: two machines changed the same lines; both versions are there")
    echo(files_line(report))


def files_line(report: TeamFilesReport) -> str:
    """Return what a sync did, in a line."""
    would = "would be " if report.dry_run else ""
    parts = [f"{plural(len(report.sent), 'file')} {would}sent"] if report.sent else []
    parts += [f"{plural(len(report.received), 'file')} {would}received"] if report.received else []
    parts += [f"{plural(len(report.merged), 'file')} {would}merged"] if report.merged else []
    conversations = report.conversations_sent, report.conversations_received
    for count, verb in zip(conversations, ("sent", "received"), strict=True):
        parts += [f"{plural(count, 'conversation')} {verb}"] if count else []
    return f"{'; '.join(parts) or 'Nothing changed'} (database, {report.schema}, {printable_line(report.workspace)})."


def _show_status(status: TeamFilesStatus) -> None:
    for problem in status.problems:
        warn(f"{problem.path}: {problem.reason}")
    echo(f"Database:   schema {status.schema}, files of {printable_line(status.workspace)}")
    echo(f"Machine:    {status.host}")
    echo(f"To send:    {plural(len(status.changed), 'file')}")
    for path in status.changed[:_SHOWN]:
        echo(f"  {printable_line(path)}")
    if len(status.changed) > _SHOWN:
        echo(f"  {len(status.changed) - _SHOWN:,} more; --json shows them all.")
    behind = "unknown" if status.behind is None else plural(status.behind, "change")
    echo(f"To receive: {behind}")


def _json(record: TeamFilesReport | TeamFilesStatus) -> dict[str, Any]:
    from kept.tools.record_json import to_json

    shape: dict[str, Any] = to_json(record)
    return shape

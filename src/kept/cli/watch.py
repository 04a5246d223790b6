"""kept watch"""

from __future__ import annotations

import signal
import threading

import click

from kept.cli.index import report_line, show_report
from kept.cli.output import progress_bar
from kept.cli.root import Globals


@click.command("watch")
@click.pass_obj
def command(options: Globals) -> None:
    """Keep the index current while notes change, until interrupted."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with options.memory() as memory, progress_bar("Indexing") as progress:
        for count, report in enumerate(memory.watch(stop=stop, progress=progress)):
            if count == 0 or report.problems or report.failures:
                show_report(report)
                click.echo(f"Watching {memory.workspace.root}; stop with Ctrl-C.", err=True)
            else:
                click.echo(report_line(report))

"""kept index"""

from __future__ import annotations

from typing import Any

import click

from kept.cli.output import json_option, plural, print_json, progress_bar, warn
from kept.cli.root import Globals
from kept.records import SyncReport


@click.command("index")
@click.option("--force", is_flag=True, help="Build the index anew, from every note.")
@json_option
@click.pass_context
def command(ctx: click.Context, force: bool, as_json: bool) -> None:
    """Bring the index up to date with the notes."""
    options: Globals = ctx.obj
    with options.memory() as memory, progress_bar("Indexing") as progress:
        report = memory.sync(force=force, progress=progress)
    if as_json:
        print_json(report_json(report))
    else:
        show_report(report)


def report_json(report: SyncReport) -> dict[str, Any]:
    return {
        "files": report.files,
        "indexed": report.indexed,
        "removed": report.removed,
        "unchanged": report.unchanged,
        "chunks": report.chunks,
        "embedded": report.embedded,
        "cached": report.cached,
        "pending": report.pending,
        "rebuilt": report.rebuilt,
        "problems": [{"path": one.path, "reason": one.reason} for one in report.problems],
        "failures": list(report.failures),
        "tookMs": round(report.took_ms, 3),
    }


def show_report(report: SyncReport) -> None:
    if report.rebuilt:
        warn(f"Rebuilt: {report.rebuilt.rstrip('.')}.")
    for problem in report.problems:
        warn(f"{problem.path}: {problem.reason}")
    for failure in report.failures:
        warn(failure)
    click.echo(report_line(report))


def report_line(report: SyncReport) -> str:
    if report.indexed or report.removed:
        parts = [f"{plural(report.indexed, 'note')} indexed"]
        if report.removed:
            parts.append(f"{report.removed:,} removed")
        parts.append(f"{plural(report.embedded, 'text')} embedded, {report.cached:,} from the cache")
    else:
        parts = ["Nothing changed"]
    parts.append(f"{plural(report.files, 'note')} and {plural(report.chunks, 'chunk')} in all")
    return "; ".join(parts) + f" ({report.took_ms / 1000:.2f} s)."

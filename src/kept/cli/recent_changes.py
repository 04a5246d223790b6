"""kept recent"""

from __future__ import annotations

import datetime as dt
from itertools import groupby

import click

from kept.cli.file_table import file_lines
from kept.cli.output import echo, json_option, max_results_option, print_json, progress_bar, style, warn_all
from kept.cli.root import Globals
from kept.tools.record_json import listing_json


@click.command("recent")
@max_results_option(20, 100_000)
@click.option("--since", metavar="WHEN", help="Only what changed from then on: 2026-03-01, 'last Thursday', 7d.")
@json_option
@click.pass_obj
def command(options: Globals, max_results: int, since: str | None, as_json: bool) -> None:
    """Show what changed lately, notes and conversations together, by day."""
    with options.memory() as memory, progress_bar("Indexing") as progress:
        listing = memory.list(source=None, since=since, order="change", max_results=max_results, progress=progress)
        today = memory.clock.now().date()
    if as_json:
        print_json(listing_json(listing))
        return
    warn_all(listing.degraded)
    lines = iter(file_lines(listing.files, dates=False))
    for day, files in groupby(listing.files, key=lambda file: file.timestamp.date()):
        echo(style(_day_text(day, today), bold=True))
        for _ in files:
            echo(f"  {next(lines)}")
    if not listing.files:
        echo("Nothing changed." if since else "There is nothing yet.")


def _day_text(day: dt.date, today: dt.date) -> str:
    name = {0: "today", 1: "yesterday"}.get((today - day).days, f"{day:%A}")
    return f"{day} ({name})"

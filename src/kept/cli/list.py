"""kept list"""

from __future__ import annotations

import click

from kept.cli.file_table import file_lines
from kept.cli.output import (
    echo,
    json_option,
    max_results_option,
    person_option,
    print_json,
    progress_bar,
    style,
    warn_all,
)
from kept.cli.root import Globals
from kept.records import SOURCES
from kept.tools.record_json import listing_json
from kept.wording import plural


@click.command("list")
@max_results_option(50, 100_000)
@click.option(
    "--source",
    type=click.Choice((*SOURCES, "all")),
    default="memory",
    help="Notes (memory), conversations (sessions), or all.",
)
@click.option("--path", metavar="GLOB", help="Only these: a path, a folder, or a pattern such as 'memory/2026-*'.")
@click.option("--since", metavar="WHEN", help="Only from this time on: 2026-03-01, 'last Thursday', 7d.")
@click.option("--until", metavar="WHEN", help="Only up to this time, that day included.")
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="Only notes with this tag; repeat it for several.")
@person_option
@json_option
@click.pass_obj
def command(
    options: Globals,
    max_results: int,
    source: str,
    path: str | None,
    since: str | None,
    until: str | None,
    tags: tuple[str, ...],
    person: str | None,
    as_json: bool,
) -> None:
    """List notes, newest first, with title, size and first words."""
    with options.memory(person=person) as memory, progress_bar("Indexing") as progress:
        listing = memory.list(
            source=None if source == "all" else source,
            path=path,
            since=since,
            until=until,
            tags=tags,
            max_results=max_results,
            progress=progress,
        )
    if as_json:
        print_json(listing_json(listing))
        return
    warn_all(listing.degraded)
    for line in file_lines(listing.files, dates=True):
        echo(line)
    noun = "note" if source == "memory" else "conversation" if source == "sessions" else "file"
    if len(listing) < listing.total:
        echo(
            style(f"{len(listing):,} of {plural(listing.total, noun)}; -n {listing.total} shows all.", dim=True),
            err=True,
        )
    elif not listing.files:
        echo(f"No {noun}s.")

"""kept verify"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kept.cli.command_arguments import base_option
from kept.cli.output import echo, json_option, local_time, print_json, progress_bar, style
from kept.wording import plural

if TYPE_CHECKING:
    from kept.archive.examination import ArchiveChain

_SHOWN = 50
_DAMAGED = 13


@click.command("verify")
@click.argument("path", metavar="ARCHIVE", type=click.Path())
@base_option
@json_option
def command(path: str, bases: tuple[str, ...], as_json: bool) -> None:
    """Check an archive of 'kept export': every file, and the archives that it builds on.

    Exits with 13 if a file of ARCHIVE is missing, changed or unexpected. Nothing is changed.
    """
    from kept.archive.examination import examine_chain

    with progress_bar("Checking", in_bytes=True) as progress:
        chain = examine_chain(path, bases, progress=progress)
    if as_json:
        print_json(_chain_json(chain))
    else:
        _print_chain(chain)
    if chain.problems or any(archive.problems for archive in chain.archives):
        raise click.exceptions.Exit(_DAMAGED)


def _print_chain(chain: ArchiveChain) -> None:
    for archive in chain.archives:
        stored = sum(record.stored for record in archive.records.values()) - 1
        state = style("damaged", fg="red", bold=True) if archive.problems else style("ok", fg="green")
        counts = f"{plural(len(archive.records) - 1, 'file')}, {stored:,} stored here"
        echo(f"{state}  {archive.path}: {counts}, made {local_time(archive.header.created)}")
        for problem in archive.problems[:_SHOWN]:
            echo(f"  {problem.path}: {problem.reason}.")
        if len(archive.problems) > _SHOWN:
            echo(f"  {len(archive.problems) - _SHOWN:,} more; --json shows them all.")
    for problem in chain.problems[:_SHOWN]:
        echo(f"  {problem.path}: {problem.reason}.")


def _chain_json(chain: ArchiveChain) -> dict[str, Any]:
    problems = [
        {"archive": archive.path, "path": problem.path, "reason": problem.reason}
        for archive in chain.archives
        for problem in archive.problems
    ]
    problems += [
        {"archive": chain.newest.path, "path": problem.path, "reason": problem.reason} for problem in chain.problems
    ]
    return {
        "ok": not problems,
        "archives": [
            {
                "path": archive.path,
                "id": archive.header.id,
                "created": archive.header.created,
                "agents": [agent.name for agent in archive.header.agents],
                "files": len(archive.records) - 1,
                "stored": sum(record.stored for record in archive.records.values()) - 1,
                "base": archive.header.base.id if archive.header.base else None,
            }
            for archive in chain.archives
        ],
        "problems": problems,
    }

"""kept export"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kept.cli.output import echo, json_option, print_json, progress_bar, style, warn
from kept.cli.root import Globals
from kept.wording import plural, size_text

if TYPE_CHECKING:
    from kept.archive.export import ExportReport

_PROBLEMS_SHOWN = 50
_INCOMPLETE = 1


@click.command("export")
@click.argument("path", metavar="ARCHIVE", type=click.Path())
@click.option("--overwrite", is_flag=True, help="Replace ARCHIVE if it exists.")
@json_option
@click.pass_obj
def command(options: Globals, path: str, overwrite: bool, as_json: bool) -> None:
    """Write notes, conversations, history and settings into one archive.

    ARCHIVE ends in .tar or .tar.gz. It has the notes and conversations of all agents, or of the one that
    --agent names, and the settings without keys and tokens. To export one conversation: kept sessions export
    """
    from kept.archive.export import export_archive

    loaded = options.load_finished()
    with progress_bar("Packing", in_bytes=True) as progress:
        report = export_archive(
            loaded,
            path,
            agent=loaded.config.agent_id if options.agent else None,
            overwrite=overwrite,
            progress=progress,
        )
    if as_json:
        print_json(_report_json(report))
    else:
        _print_report(report)
    if report.problems:
        raise click.exceptions.Exit(_INCOMPLETE)


def _print_report(report: ExportReport) -> None:
    what = f"{report.path}: {plural(report.files, 'file')}, {size_text(report.content_bytes)}."
    echo(f"{style(what, bold=True)} The archive takes {size_text(report.archive_bytes)}.")
    if report.removed_settings:
        echo(f"Left out of the settings, because they are secret: {', '.join(report.removed_settings)}.")
    if report.left_out:
        echo(f"Extra paths are not packed: {', '.join(report.left_out)}.")
    for problem in report.problems[:_PROBLEMS_SHOWN]:
        warn(f"{problem.path}: {problem.reason}.")
    if len(report.problems) > _PROBLEMS_SHOWN:
        warn(f"{len(report.problems) - _PROBLEMS_SHOWN:,} more; --json shows them all.")


def _report_json(report: ExportReport) -> dict[str, Any]:
    return {
        "path": report.path,
        "agents": list(report.agents),
        "files": report.files,
        "contentBytes": report.content_bytes,
        "archiveBytes": report.archive_bytes,
        "removedSettings": list(report.removed_settings),
        "leftOut": list(report.left_out),
        "problems": [{"path": problem.path, "reason": problem.reason} for problem in report.problems],
    }

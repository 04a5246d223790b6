"""kept export"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kept.cli.output import echo, json_option, print_json, progress_bar, style, warn
from kept.cli.root import Globals
from kept.wording import plural, size_text

if TYPE_CHECKING:
    from kept.archive.packing import ExportReport

_PROBLEMS_SHOWN = 50
_INCOMPLETE = 1


@click.command("export")
@click.argument("path", metavar="ARCHIVE", type=click.Path())
@click.option(
    "--since-archive", metavar="FILE", type=click.Path(), help="Pack only what is not the same in this archive."
)
@click.option("--notes-only", is_flag=True, help="Leave out pictures and other files among the notes.")
@click.option("--overwrite", is_flag=True, help="Replace ARCHIVE if it exists.")
@json_option
@click.pass_obj
def command(
    options: Globals, path: str, since_archive: str | None, notes_only: bool, overwrite: bool, as_json: bool
) -> None:
    """Write notes, conversations, history and settings into one archive.

    ARCHIVE ends in .tar, .tar.gz or .tar.zst. It has the notes and conversations of all agents, or of the one that
    --agent names, and the settings without keys and tokens. To export one conversation: kept sessions export
    """
    from kept.archive.packing import export_archive

    loaded = options.load_finished()
    with progress_bar("Packing", in_bytes=True) as progress:
        report = export_archive(
            loaded,
            path,
            agent=loaded.config.agent_id if options.agent else None,
            base=since_archive,
            notes_only=notes_only,
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
    since = f" since {report.base}" if report.base else ""
    unchanged = f"; {report.files - report.stored:,} unchanged{since}" if report.base else ""
    echo(
        style(
            f"{report.path}: {plural(report.stored, 'file')}, {size_text(report.content_bytes)}{unchanged}.", bold=True
        )
        + f" The archive takes {size_text(report.archive_bytes)}."
    )
    if report.removed_settings:
        echo(f"Left out of the settings, because they are secret: {', '.join(report.removed_settings)}.")
    if report.left_out:
        echo(f"Extra paths are not packed: {', '.join(report.left_out)}.")
    for name in report.vanished[:_PROBLEMS_SHOWN]:
        warn(f"{name}: was deleted while the archive was written.")
    for problem in report.problems[:_PROBLEMS_SHOWN]:
        warn(f"{problem.path}: {problem.reason}.")
    if len(report.problems) > _PROBLEMS_SHOWN:
        warn(f"{len(report.problems) - _PROBLEMS_SHOWN:,} more; --json shows them all.")


def _report_json(report: ExportReport) -> dict[str, Any]:
    return {
        "path": report.path,
        "id": report.id,
        "base": report.base,
        "agents": list(report.agents),
        "files": report.files,
        "stored": report.stored,
        "contentBytes": report.content_bytes,
        "archiveBytes": report.archive_bytes,
        "removedSettings": list(report.removed_settings),
        "leftOut": list(report.left_out),
        "vanished": list(report.vanished),
        "problems": [{"path": problem.path, "reason": problem.reason} for problem in report.problems],
    }

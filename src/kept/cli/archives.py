"""kept export and kept restore: the whole memory in one archive, and back"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from kept.agent.tools.record_json import to_json
from kept.base.wording import plural, size_text
from kept.cli.output import echo, local_time, print_json, style, warn_all
from kept.cli.root import Globals

if TYPE_CHECKING:
    from kept.cli.archive.export import ExportReport
    from kept.cli.archive.restore import RestoreReport


_INCOMPLETE = 1


@click.command("export")
@click.argument("path", metavar="ARCHIVE", type=click.Path())
@click.option("--overwrite", is_flag=True, help="Replace ARCHIVE if it exists.")
@click.pass_obj
def export_command(options: Globals, path: str, overwrite: bool) -> None:
    """Write notes, conversations, history and settings into one archive.

    ARCHIVE ends in .tar or .tar.gz. It has the notes and conversations of all agents, and the settings without keys
    and tokens.

    \b
    kept export backup.tar.gz
    """
    from kept.cli.archive.export import export_archive

    report = export_archive(options.load(), path, overwrite=overwrite)
    if options.as_json:
        print_json(to_json(report))
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
    warn_all(f"{problem.path}: {problem.reason}." for problem in report.problems)


@click.command("restore")
@click.argument("path", metavar="ARCHIVE", type=click.Path())
@click.option("--no-settings", is_flag=True, help="Leave out config.yaml.")
@click.option("--check", is_flag=True, help="Check every file of ARCHIVE, say what a restore would do, change nothing.")
@click.pass_obj
def restore_command(options: Globals, path: str, no_settings: bool, check: bool) -> None:
    """Bring back notes, conversations and settings from an archive of 'kept export'.

    ARCHIVE is checked first. A file that is here with another content stays and is listed. --workspace names the folder
    for the notes of the main agent. Run it again if it was interrupted. To bring back a conversation that you deleted:
    kept sessions restore

    \b
    kept restore backup.tar.gz --check
    kept restore backup.tar.gz --workspace ~/notes
    """
    from kept.cli.archive.restore import restore_archive

    report = restore_archive(
        path,
        options.load(new_agent=True, quietly=True).config,
        workspace=options.workspace or os.environ.get("KEPT_WORKSPACE") or None,
        with_settings=not no_settings,
        check=check,
    )
    if options.as_json:
        print_json(to_json(report))
    else:
        _print_restored(report)
    if report.kept:
        raise click.exceptions.Exit(_INCOMPLETE)


def _print_restored(report: RestoreReport) -> None:
    counts = report.counts
    words = (
        (counts["new"], "restored"),
        (counts["same"], "here already"),
        (counts["deleted"], "left out because you deleted them here"),
        (counts["forgotten"], "left out because of what you forgot here"),
        (len(report.kept) - counts["forgotten"], "different here and kept"),
    )
    shown = ", ".join(f"{count:,} {word}" for count, word in words if count) or "nothing to do"
    lead = "The archive is sound; nothing was changed. A restore: " if report.check else ""
    total = plural(sum(counts.values()), "file")
    echo(style(f"{lead}{total} from {local_time(report.created)}: {shown}.", bold=True))
    for agent in report.agents:
        echo(f"Notes of {agent.name}: {agent.workspace}")
    if report.settings == "kept":
        echo("Settings: those here are kept.")
    if report.removed_settings:
        echo(f"Settings to set again, because an archive has no secrets: {', '.join(report.removed_settings)}.")
    warn_all(f"{problem.path}: {problem.reason}." for problem in report.kept)
    if len(report.kept) > counts["forgotten"]:
        echo("To get a file of the archive back, move the one that is here away and restore again.", err=True)
    if counts["new"] and not report.check:
        echo("The next search indexes what was restored; 'kept index' does it now.")

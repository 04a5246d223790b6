"""kept export and kept restore: the whole memory in one archive, and back"""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

from kept.agent.tools.record_json import to_json
from kept.base.wording import plural, size_text
from kept.cli.archive.export import ExportReport, export_archive
from kept.cli.archive.restore import RestoreReport, restore_archive
from kept.cli.options import kept_command, switch
from kept.cli.output import bold, echo, local_time, warn_all
from kept.cli.root import Globals

_INCOMPLETE = 1


@kept_command("export")
@click.argument("path", metavar="ARCHIVE", type=click.Path())
@switch("--overwrite", "Replace ARCHIVE if it exists.")
def export_command(options: Globals, path: str, overwrite: bool) -> None:
    """Write notes, conversations, history and settings into one archive.

    ARCHIVE ends in .tar or .tar.gz. It has the notes and conversations of all agents, and the settings without keys
    and tokens.

    \b
    kept export backup.tar.gz
    """
    report = export_archive(options.load(), path, overwrite=overwrite)
    options.report(to_json(report), _export_lines(report))
    if report.problems:
        raise click.exceptions.Exit(_INCOMPLETE)


def _export_lines(report: ExportReport) -> Iterator[str]:
    what = f"{report.path}: {plural(report.files, 'file')}, {size_text(report.content_bytes)}."
    yield f"{bold(what)} The archive takes {size_text(report.archive_bytes)}."
    if report.removed_settings:
        yield f"Left out of the settings, because they are secret: {', '.join(report.removed_settings)}."
    if report.left_out:
        yield f"Extra paths are not packed: {', '.join(report.left_out)}."
    warn_all(f"{problem.path}: {problem.reason}." for problem in report.problems)


@kept_command("restore")
@click.argument("path", metavar="ARCHIVE", type=click.Path())
@switch("--no-settings", "Leave out config.yaml.")
@switch("--check", "Check every file of ARCHIVE, say what a restore would do, change nothing.")
def restore_command(options: Globals, path: str, no_settings: bool, check: bool) -> None:
    """Bring back notes, conversations and settings from an archive of 'kept export'.

    ARCHIVE is checked first. A file that is here with another content stays and is listed. --workspace names the folder
    for the notes of the main agent. Run it again if it was interrupted. To bring back a conversation that you deleted:
    kept sessions restore

    \b
    kept restore backup.tar.gz --check
    kept restore backup.tar.gz --workspace ~/notes
    """
    report = restore_archive(
        path,
        options.load(new_agent=True, quietly=True).config,
        workspace=options.workspace or os.environ.get("KEPT_WORKSPACE") or None,
        with_settings=not no_settings,
        check=check,
    )
    options.report(to_json(report), _restore_lines(report))
    if report.kept:
        raise click.exceptions.Exit(_INCOMPLETE)


def _restore_lines(report: RestoreReport) -> Iterator[str]:
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
    yield bold(f"{lead}{total} from {local_time(report.created)}: {shown}.")
    yield from (f"Notes of {agent.name}: {agent.workspace}" for agent in report.agents)
    if report.settings == "kept":
        yield "Settings: those here are kept."
    if report.removed_settings:
        yield f"Settings to set again, because an archive has no secrets: {', '.join(report.removed_settings)}."
    warn_all(f"{problem.path}: {problem.reason}." for problem in report.kept)
    if len(report.kept) > counts["forgotten"]:
        echo("To get a file of the archive back, move the one that is here away and restore again.", err=True)
    if counts["new"] and not report.check:
        yield "The next search indexes what was restored; 'kept index' does it now."

"""kept import without a format: look for conversations on this machine, show them, and import them if wanted."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from kept.cli.import_report import print_report, report_json
from kept.cli.imports import adopt_workspaces, import_folders, user_folders
from kept.cli.output import echo, print_json, style
from kept.cli.root import Globals
from kept.cli.terminal_layout import text_width
from kept.values import frozen
from kept.wording import plural

if TYPE_CHECKING:
    from kept.config import LoadedConfig
    from kept.sessions.importers.foreign_format import Format
    from kept.sessions.importers.program_folders import Program
    from kept.sessions.importers.report import ImportReport
    from kept.workspace.adopt import NotesAdopted

_FAILED = 9
_SERVICES = {"chatgpt": "ChatGPT", "claude-ai": "Claude.ai"}


@frozen
class FoundProgram:
    """A program with conversations on this machine, and what importing them would do."""

    program: Program
    name: str
    folders: list[str]
    plan: ImportReport

    @property
    def new(self) -> int:
        return self.plan.count("imported")

    @property
    def grown(self) -> int:
        return self.plan.count("updated")

    @property
    def command(self) -> str:
        return f"kept import {self.program}"


def import_all(options: Globals, *, yes: bool, as_json: bool) -> None:
    loaded = options.load()
    programs = _find_programs(loaded)
    exports = user_folders().find_exports()
    wanted = [program for program in programs if program.new or program.grown]
    if as_json:
        results = [_import(loaded, program) for program in wanted] if yes else []
        print_json(_json(programs, exports, results))
    else:
        _show(programs, exports)
        results = _import_shown(loaded, wanted) if wanted and (yes or _confirms(wanted)) else []
    if any(report.count("failed") for report, _ in results):
        raise click.exceptions.Exit(_FAILED)


def _find_programs(loaded: LoadedConfig) -> list[FoundProgram]:
    from kept.sessions.importers.program_folders import PROGRAMS

    programs = []
    for program, name in PROGRAMS.items():
        folders = user_folders().existing_folders(program)
        if folders:
            plan = import_folders(loaded, program, folders, dry_run=True, label=f"Looking at {name}")
            programs.append(FoundProgram(program, name, folders, plan))
    return [program for program in programs if program.plan.sessions]


def _import(loaded: LoadedConfig, program: FoundProgram) -> tuple[ImportReport, list[NotesAdopted]]:
    report = import_folders(loaded, program.program, program.folders, dry_run=False, label=f"Importing {program.name}")
    is_openclaw = program.program == "openclaw"
    return report, adopt_workspaces(loaded, program.folders, dry_run=False, instructions=False) if is_openclaw else []


def _import_shown(loaded: LoadedConfig, wanted: list[FoundProgram]) -> list[tuple[ImportReport, list[NotesAdopted]]]:
    results = []
    for program in wanted:
        results.append(_import(loaded, program))
        echo()
        echo(f"{program.name}:")
        print_report(*results[-1], verbose=False)
    return results


def _confirms(wanted: list[FoundProgram]) -> bool:
    """Ask on a terminal. Anywhere else, print the commands, so that nothing is imported unasked."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        echo()
        echo("To import them all: kept import --yes")
        for program in wanted:
            echo(f"  {program.name} only: {program.command}")
        return False
    new, grown = sum(program.new for program in wanted), sum(program.grown for program in wanted)
    changed = [f"{new:,} new"] * bool(new) + [f"{grown:,} with new messages"] * bool(grown)
    return click.confirm(f"\nImport {plural(new + grown, 'session')} ({', '.join(changed)})?", default=True)


# showing


def _show(programs: list[FoundProgram], exports: list[tuple[str, Format]]) -> None:
    if not programs:
        echo("No conversations of Claude Code, Codex, OpenClaw or pi were found in their usual folders.")
    else:
        _show_table(programs)
    if exports:
        echo()
        echo(style("Exports in your downloads, which are imported only by their own command:", bold=True))
        for path, service in exports:
            echo(f"  kept import {service} {shlex.quote(path)}")
    elif not programs:
        echo("Name a file or folder ('kept import --help' lists the formats), or download an export of ChatGPT or")
        echo("Claude.ai: kept import chatgpt FILE.zip")


def _show_table(programs: list[FoundProgram]) -> None:
    rows = [("Source", "Folder", "Sessions", "New", "Grown")]
    for program in programs:
        counts = (f"{count:,}" for count in (len(program.plan.sessions), program.new, program.grown))
        rows.append((program.name, ", ".join(map(_short, program.folders)), *counts))  # type: ignore[arg-type]
    widths = [max(text_width(row[index]) for row in rows) for index in range(5)]
    for number, row in enumerate(rows):
        left = [cell + " " * (width - text_width(cell)) for cell, width in zip(row[:2], widths[:2], strict=True)]
        right = [f"{cell:>{width}}" for cell, width in zip(row[2:], widths[2:], strict=True)]
        line = "  ".join((*left, *right))
        echo(style(line, bold=True) if number == 0 else line)


def _short(path: str) -> str:
    home = os.path.expanduser("~")
    return "~" + path.removeprefix(home) if path.startswith(home + os.sep) else path


def _json(
    programs: list[FoundProgram],
    exports: list[tuple[str, Format]],
    results: list[tuple[ImportReport, list[NotesAdopted]]],
) -> dict[str, Any]:
    return {
        "sources": [
            {
                "format": program.program,
                "name": program.name,
                "folders": program.folders,
                "sessions": len(program.plan.sessions),
                "new": program.new,
                "grown": program.grown,
                "command": program.command,
            }
            for program in programs
        ],
        "exports": [
            {
                "format": service,
                "name": _SERVICES[service],
                "path": path,
                "command": f"kept import {service} {shlex.quote(path)}",
            }
            for path, service in exports
        ],
        "reports": [report_json(report, notes) for report, notes in results],
    }

"""kept import, kept import openclaw | claude-code | codex | pi | chatgpt | claude-ai"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from kept.cli.import_report import FAILED, print_report, report_json, show_report
from kept.cli.output import echo, print_json, progress_bar
from kept.cli.root import Globals
from kept.cli.terminal_layout import show_table
from kept.errors import UsageError
from kept.values import frozen
from kept.wording import plural

if TYPE_CHECKING:
    from kept.config import LoadedConfig
    from kept.sessions.importers.draft_writer import ImportReport
    from kept.sessions.importers.foreign_format import Format, Program
    from kept.workspace.adopt import NotesAdopted


@click.group("import", invoke_without_command=True)
@click.option("--yes", "-y", is_flag=True, help="Import everything that is found, without asking.")
@click.pass_context
def command(ctx: click.Context, yes: bool) -> None:
    """Import conversations from other programs.

    Alone, it looks for conversations of Claude Code, Codex, OpenClaw and pi on this machine, and asks before it imports
    them. Sources are only read, and running it again imports only what is new. For another agent: kept --agent NAME
    import …
    """
    if ctx.invoked_subcommand is None:
        import_all(ctx.obj, yes=yes)
    elif yes:
        raise UsageError(
            f"Put the options after '{ctx.invoked_subcommand}'.", hint=f"See 'kept import {ctx.invoked_subcommand} -h'."
        )


_TRANSCRIPTS = "PATH is a transcript or a folder of them"
_EXPORT = "FILE is the zip file as you downloaded it, the folder you unpacked it to, or conversations.json."
_HELP: dict[Format, str] = {
    "openclaw": """Import OpenClaw's sessions, and its notes unless a note has the same name.

    PATH is its folder (default: ~/.openclaw).""",
    "claude-code": f"""Import Claude Code's sessions.

    {_TRANSCRIPTS} (default: ~/.claude/projects, or that of CLAUDE_CONFIG_DIR).""",
    "codex": f"""Import Codex's sessions.

    {_TRANSCRIPTS} (default: the sessions in ~/.codex, or in CODEX_HOME).""",
    "pi": f"""Import pi's sessions.

    {_TRANSCRIPTS} (default: ~/.pi/agent/sessions, or that of PI_CODING_AGENT_DIR).""",
    "chatgpt": f"""Import the conversations of an export of ChatGPT.

    {_EXPORT}""",
    "claude-ai": f"""Import the conversations of an export of Claude.ai.

    {_EXPORT}""",
}


def _add_command(format_name: Format) -> None:
    """Add the command that imports one format. An export has no usual folder, so its file has to be named."""
    is_export = format_name in ("chatgpt", "claude-ai")

    @command.command(format_name, help=_HELP[format_name])
    @click.argument("path", metavar="FILE" if is_export else "[PATH]", type=click.Path(), required=is_export)
    @click.option("--dry-run", is_flag=True, help="Report what would be done and change nothing.")
    @click.pass_obj
    def run(options: Globals, path: str | None, dry_run: bool, instructions: bool | None = None) -> None:
        loaded = options.load_finished()
        folders = [path] if path else require_folders(format_name)  # type: ignore[arg-type]
        report = import_folders(loaded, format_name, folders, dry_run=dry_run)
        notes = []
        if instructions is not None:
            notes = adopt_workspaces(loaded, folders, dry_run=dry_run, instructions=instructions)
        show_report(report, folders[0], notes, as_json=options.as_json)

    if format_name == "openclaw":
        about = "Copy files of a system prompt too, such as SOUL.md, AGENTS.md and USER.md."
        run.params.append(click.Option(["--instructions"], is_flag=True, help=about))


def require_folders(program: Program) -> list[str]:
    """Return the folders of a program that exist. Raise UsageError if there is none."""
    from kept.sessions.importers.foreign_format import PROGRAMS, existing_folders, program_folders

    existing = existing_folders(program)
    if not existing:
        raise UsageError(
            f"There are no conversations of {PROGRAMS[program]} in {program_folders(program)[0]}.",
            hint=f"Name the folder or file: kept import {program} PATH",
        )
    return existing


def import_folders(
    loaded: LoadedConfig, format_name: Format, paths: list[str], *, dry_run: bool, label: str = "Importing"
) -> ImportReport:
    from kept.app import open_sessions
    from kept.sessions.importers.import_run import import_sessions

    with open_sessions(loaded) as sessions, progress_bar(label, in_bytes=True) as progress:
        return import_sessions(sessions, format_name, *paths, dry_run=dry_run, progress=progress)


# notes


def adopt_workspaces(
    loaded: LoadedConfig, folders: list[str], *, dry_run: bool, instructions: bool
) -> list[NotesAdopted]:
    """Copy the notes of OpenClaw's workspace, if there is one."""
    config = loaded.config
    workspaces = [workspace for folder in folders for workspace in _workspaces(folder, config.agent_id)][:1]
    return [_adopt_notes(loaded, folder, dry_run=dry_run, instructions=instructions) for folder in workspaces]


def _workspaces(path: str, agent_id: str) -> list[str]:
    """Return the workspace of an agent of OpenClaw: below its folder, or the path itself. Empty if there is none."""
    from kept.workspace.adopt import is_workspace

    root = os.path.abspath(os.path.expanduser(path))
    own = os.path.join(root, f"workspace-{agent_id}")
    candidates = [own if os.path.isdir(own) else os.path.join(root, "workspace"), root]
    return [folder for folder in candidates if is_workspace(folder)][:1]


def _adopt_notes(loaded: LoadedConfig, folder: str, *, dry_run: bool, instructions: bool) -> NotesAdopted:
    from kept.cli.root import command_recorder
    from kept.workspace.adopt import adopt_notes
    from kept.workspace.workspace import Workspace

    config = loaded.config
    return adopt_notes(
        Workspace.of(config),
        folder,
        max_bytes=config.memory_search.max_file_bytes,
        dry_run=dry_run,
        instructions=instructions,
        recorder=None if dry_run else command_recorder(config, "import", why=f"from {folder}"),
    )


# looking for conversations on this machine


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


def import_all(options: Globals, *, yes: bool) -> None:
    loaded = options.load()
    programs = _find_programs(loaded)
    wanted = [program for program in programs if program.new or program.grown]
    if options.as_json:
        results = [_import(loaded, program) for program in wanted] if yes else []
        print_json(_json(programs, results))
    else:
        _show(programs)
        results = _import_shown(loaded, wanted) if wanted and (yes or _confirms(wanted)) else []
    if any(report.count("failed") for report, _ in results):
        raise click.exceptions.Exit(FAILED)


def _find_programs(loaded: LoadedConfig) -> list[FoundProgram]:
    from kept.sessions.importers.foreign_format import PROGRAMS, existing_folders

    programs = []
    for program, name in PROGRAMS.items():
        folders = existing_folders(program)
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
        print_report(*results[-1])
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


def _show(programs: list[FoundProgram]) -> None:
    if not programs:
        echo("No conversations of Claude Code, Codex, OpenClaw or pi were found in their usual folders.")
        echo("Name a file or folder, also one of an export of ChatGPT or Claude.ai: 'kept import --help'.")
    else:
        rows = [
            (
                program.name,
                ", ".join(program.folders),
                len(program.plan.sessions),
                program.new,
                program.grown,
            )
            for program in programs
        ]
        show_table(("Source", "Folder", "Sessions", "New", "Grown"), rows)


def _json(programs: list[FoundProgram], results: list[tuple[ImportReport, list[NotesAdopted]]]) -> dict[str, Any]:
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
        "reports": [report_json(report, notes) for report, notes in results],
    }


for _format in _HELP:
    _add_command(_format)

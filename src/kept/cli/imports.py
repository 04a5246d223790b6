"""kept import, kept import openclaw | claude-code | codex | pi | chatgpt | claude-ai"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from kept.cli.import_report import show_report
from kept.cli.output import json_option, progress_bar
from kept.cli.root import Globals
from kept.errors import UsageError

if TYPE_CHECKING:
    from kept.config import LoadedConfig
    from kept.sessions.importers.foreign_format import Format
    from kept.sessions.importers.program_folders import Program, UserFolders
    from kept.sessions.importers.report import ImportReport
    from kept.workspace.adopt import NotesAdopted

_dry_run_option = click.option("--dry-run", is_flag=True, help="Report what would be done and change nothing.")
_verbose_option = click.option("--verbose", "-v", is_flag=True, help="Also count the kinds of records.")


@click.group("import", invoke_without_command=True)
@click.option("--yes", "-y", is_flag=True, help="Import everything that is found, without asking.")
@json_option
@click.pass_context
def command(ctx: click.Context, yes: bool, as_json: bool) -> None:
    """Import conversations from other programs.

    Alone, it looks for conversations of Claude Code, Codex, OpenClaw and pi on this machine, and asks before it imports
    them. Sources are only read, and running it again imports only what is new. For another agent: kept --agent NAME
    import …
    """
    if ctx.invoked_subcommand is None:
        from kept.cli.import_search import import_all

        import_all(ctx.obj, yes=yes, as_json=as_json)
    elif yes or as_json:
        raise UsageError(
            f"Put the options after '{ctx.invoked_subcommand}'.", hint=f"See 'kept import {ctx.invoked_subcommand} -h'."
        )


def _program_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the argument and the options that the import of every format has."""
    for option in (json_option, _verbose_option, _dry_run_option):
        function = option(function)
    return click.argument("path", metavar="[PATH]", type=click.Path(), required=False)(click.pass_obj(function))


def _export_options(function: Callable[..., None]) -> Callable[..., None]:
    for option in (json_option, _verbose_option, _dry_run_option):
        function = option(function)
    return click.argument("path", metavar="FILE", type=click.Path())(click.pass_obj(function))


@command.command("openclaw")
@_program_options
@click.option(
    "--instructions", is_flag=True, help="Copy files of a system prompt too, such as SOUL.md, AGENTS.md and USER.md."
)
def openclaw(
    options: Globals, path: str | None, instructions: bool, dry_run: bool, verbose: bool, as_json: bool
) -> None:
    """Import OpenClaw's sessions, and its notes unless a note has the same name.

    PATH is its folder (default: ~/.openclaw).
    """
    loaded = options.load_finished()
    folders = [path] if path else program_folders("openclaw")
    report = import_folders(loaded, "openclaw", folders, dry_run=dry_run)
    notes = adopt_workspaces(loaded, folders, dry_run=dry_run, instructions=instructions)
    show_report(report, folders[0], notes, as_json=as_json, verbose=verbose)


@command.command("claude-code")
@_program_options
def claude_code(options: Globals, path: str | None, dry_run: bool, verbose: bool, as_json: bool) -> None:
    """Import Claude Code's sessions.

    PATH is a transcript or a folder of them (default: ~/.claude/projects, or that of CLAUDE_CONFIG_DIR).
    """
    _import_program(options, "claude-code", path, dry_run=dry_run, verbose=verbose, as_json=as_json)


@command.command("codex")
@_program_options
def codex(options: Globals, path: str | None, dry_run: bool, verbose: bool, as_json: bool) -> None:
    """Import Codex's sessions.

    PATH is a transcript or a folder of them (default: the sessions in ~/.codex, or in CODEX_HOME).
    """
    _import_program(options, "codex", path, dry_run=dry_run, verbose=verbose, as_json=as_json)


@command.command("pi")
@_program_options
def pi(options: Globals, path: str | None, dry_run: bool, verbose: bool, as_json: bool) -> None:
    """Import pi's sessions.

    PATH is a transcript or a folder of them (default: ~/.pi/agent/sessions, or that of PI_CODING_AGENT_DIR).
    """
    _import_program(options, "pi", path, dry_run=dry_run, verbose=verbose, as_json=as_json)


@command.command("chatgpt")
@_export_options
def chatgpt(options: Globals, path: str, dry_run: bool, verbose: bool, as_json: bool) -> None:
    """Import the conversations of an export of ChatGPT.

    FILE is the zip file as you downloaded it, the folder you unpacked it to, or conversations.json.
    """
    report = import_folders(options.load_finished(), "chatgpt", [path], dry_run=dry_run)
    show_report(report, path, [], as_json=as_json, verbose=verbose)


@command.command("claude-ai")
@_export_options
def claude_ai(options: Globals, path: str, dry_run: bool, verbose: bool, as_json: bool) -> None:
    """Import the conversations of an export of Claude.ai.

    FILE is the zip file as you downloaded it, the folder you unpacked it to, or conversations.json.
    """
    report = import_folders(options.load_finished(), "claude-ai", [path], dry_run=dry_run)
    show_report(report, path, [], as_json=as_json, verbose=verbose)


def _import_program(
    options: Globals, program: Program, path: str | None, *, dry_run: bool, verbose: bool, as_json: bool
) -> None:
    folders = [path] if path else program_folders(program)
    report = import_folders(options.load_finished(), program, folders, dry_run=dry_run)
    show_report(report, folders[0], [], as_json=as_json, verbose=verbose)


def user_folders() -> UserFolders:
    from kept.sessions.importers.program_folders import UserFolders

    return UserFolders(os.path.expanduser("~"), os.environ)


def program_folders(program: Program) -> list[str]:
    """Return the folders of a program that exist. Raise UsageError if there is none."""
    from kept.sessions.importers.program_folders import PROGRAMS

    folders = user_folders()
    existing = folders.existing_folders(program)
    if not existing:
        raise UsageError(
            f"There are no conversations of {PROGRAMS[program]} in {folders.program_folders(program)[0]}.",
            hint=f"Name the folder or file: kept import {program} PATH",
        )
    return existing


def import_folders(
    loaded: LoadedConfig, format_name: Format, paths: list[str], *, dry_run: bool, label: str = "Importing"
) -> ImportReport:
    from kept.app import open_sessions
    from kept.sessions.importers.import_run import import_sessions
    from kept.sessions.importers.report import combine_reports

    with open_sessions(loaded) as sessions, progress_bar(label, in_bytes=True) as progress:
        return combine_reports(
            [import_sessions(sessions, format_name, path, dry_run=dry_run, progress=progress) for path in paths]
        )


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
    from kept.cli.command_author import command_recorder
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

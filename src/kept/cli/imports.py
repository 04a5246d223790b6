"""kept import"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import click

from kept.agent.tools.record_json import to_json
from kept.base.records import Problem
from kept.base.wording import plural, short_list
from kept.cli.options import kept_command, switch
from kept.cli.output import bold, echo, progress_bar, warn_all
from kept.cli.root import Globals, command_recorder
from kept.errors import UsageError
from kept.notes.adopt import NotesAdopted, adopt_notes, is_workspace
from kept.notes.workspace import Workspace
from kept.sessions.forgotten_text import ForgottenText
from kept.sessions.importers.import_run import (
    PROGRAMS,
    Format,
    ImportReport,
    Outcome,
    Program,
    existing_folders,
    import_sessions,
    program_folders,
)
from kept.storage.open import open_agent

_NAMES_SHOWN = 5
_FAILED = 9


@kept_command("import")
@click.argument("program", type=click.Choice((*PROGRAMS, "chatgpt", "claude-ai")), metavar="[PROGRAM]", required=False)
@click.argument("path", type=click.Path(), required=False)
@switch("--yes", "Import everything that is found, without asking.", "-y")
@switch("--instructions", "From OpenClaw, copy files of a system prompt too, such as SOUL.md, AGENTS.md and USER.md.")
def command(options: Globals, program: Format | None, path: str | None, yes: bool, instructions: bool) -> None:
    """Import conversations from other programs.

    Alone, it looks for conversations of Claude Code, Codex, OpenClaw and pi on this machine, and asks before it imports
    them. Sources are only read, and running it again imports only what is new. For another agent: kept --agent NAME
    import …

    PROGRAM is claude-code, codex, openclaw, pi, chatgpt or claude-ai. PATH is a transcript, or a folder of them
    (default: the folder of the program). From the folder of OpenClaw, notes are imported too, unless a note has the
    same name. For chatgpt and claude-ai it is the zip file as you downloaded it, the folder you unpacked it to, or
    conversations.json.

    \b
    kept import
    kept import claude-code
    kept import chatgpt ~/Downloads/export.zip
    """
    if program is None:
        _import_all(options, yes=yes)
        return
    usual: Any = program  # exports of services have no usual folder
    folders = [path] if path else existing_folders(usual) if usual in PROGRAMS else []
    if not folders:
        hint = f"Name the folder or file: kept import {program} PATH"
        if program not in PROGRAMS:
            raise UsageError(f"An export of {program} has no usual folder.", hint=hint)
        raise UsageError(f"There are no conversations in {program_folders(usual)[0]}.", hint=hint)
    report, notes = _import(options, program, folders, instructions=instructions)
    if not report.sessions and not notes and os.path.isfile(folders[0]):
        first = next(iter((*report.problems, *report.ignored)), Problem(folders[0], "holds no conversation"))
        hint = "'kept import --help' lists the formats."
        raise UsageError(f"{first.path}: {first.reason}; nothing was imported.", hint=hint)
    options.report(_report_json(report, notes), _report_lines(report, notes))
    if report.count("failed"):
        raise click.exceptions.Exit(_FAILED)


def _import_all(options: Globals, *, yes: bool) -> None:
    sources = {program: folders for program in PROGRAMS if (folders := existing_folders(program))}
    shapes = [{"format": program, "folders": folders} for program, folders in sources.items()]
    if not options.as_json:
        yes = _ask_to_import(sources, yes=yes)
    results = []
    for program, folders in sources.items() if yes else ():
        results.append(_import(options, program, folders, label=f"Importing {PROGRAMS[program]}"))
        if not options.as_json:
            echo("\n".join([f"\n{PROGRAMS[program]}:", *_report_lines(*results[-1])]))
    reports = [_report_json(*result) for result in results]
    options.report({"sources": shapes, "reports": reports}, ())
    if any(report.count("failed") for report, _ in results):
        raise click.exceptions.Exit(_FAILED)


def _ask_to_import(sources: Mapping[Program, list[str]], *, yes: bool) -> bool:
    for program, folders in sources.items():
        echo(f"{PROGRAMS[program]}: {', '.join(folders)} (kept import {program})")
    if not sources:
        echo("No conversations of Claude Code, Codex, OpenClaw or pi were found in their usual folders.")
        echo("Name a file or folder, also one of an export of ChatGPT or Claude.ai: 'kept import --help'.")
    elif not yes and sys.stdin.isatty() and sys.stdout.isatty():
        return click.confirm("Import what is new in them?", default=True)
    elif not yes:
        echo("To import them all: kept import --yes")
    return yes


def _import(
    options: Globals,
    format_name: Format,
    folders: list[str],
    *,
    instructions: bool = False,
    label: str = "Importing",
) -> tuple[ImportReport, NotesAdopted | None]:
    """Import conversations; of OpenClaw, the notes in its workspace too."""
    with options.sessions() as sessions, progress_bar(label, in_bytes=True) as progress:
        report = import_sessions(sessions, format_name, *folders, progress=progress)
    if format_name != "openclaw" or options.login():  # a server gets conversations only
        return report, None
    config = options.load(quietly=True).config
    roots = [os.path.abspath(os.path.expanduser(path)) for path in folders]
    names = (f"workspace-{config.agent_id}", "workspace", "")  # that of an agent of OpenClaw, or the path itself
    theirs = [folder for root in roots for name in names if is_workspace(folder := os.path.join(root, name))]
    if not theirs:
        return report, None
    return report, adopt_notes(
        Workspace.of(config),
        theirs[0],
        instructions=instructions,
        max_bytes=config.memory_search.max_file_bytes,
        recorder=command_recorder(config, "import", why=f"from {theirs[0]}"),
        is_forgotten=ForgottenText(open_agent(config)).matches,
    )


# showing


def _report_lines(report: ImportReport, notes: NotesAdopted | None) -> Iterator[str]:
    words: dict[Outcome, str] = {
        "imported": "imported",
        "updated": "updated",
        "unchanged": "here already",
        "waiting": "waiting on this machine until the server answers",
        "deleted": f"left out because you deleted {'it' if report.count('deleted') == 1 else 'them'}",
        "failed": "failed",
    }
    counts = ", ".join(f"{report.count(name):,} {word}" for name, word in words.items() if report.count(name))
    total = f"{plural(len(report.sessions), 'session')} with {plural(report.messages, 'message')}"
    yield bold(f"{total}: {counts}." if report.sessions else "No sessions were found.")
    if report.count("deleted"):
        yield "'kept sessions list --deleted' shows deleted sessions, 'kept sessions restore ID' brings one back."
    if notes:
        here = f"{len(notes.same)} here already, {len(notes.conflicts)} in conflict"
        yield f"Notes: {len(notes.copied)} copied, {here}."
    failed = (session for session in report.sessions if session.reason)
    warnings = [f"{session.source}: session {session.id} failed: {session.reason}" for session in failed]
    warnings += [f"{problem.path}: {problem.reason}" for problem in (*report.problems, *report.ignored)]
    if notes:
        warnings += [f"{problem.path}: {problem.reason}" for problem in notes.problems]
        warnings += [f"{name}: exists here with another text, which is kept" for name in notes.conflicts]
        for lead, names in (
            ("not notes that Kept searches, so left out", notes.left_out),
            ("part of the agent's system prompt, so not copied without --instructions", notes.held_back),
        ):
            warnings += [f"{lead}: {short_list(names, _NAMES_SHOWN)}"] if names else []
    warn_all(f"{warning.rstrip('.')}." for warning in warnings)


def _report_json(report: ImportReport, notes: NotesAdopted | None) -> dict[str, Any]:
    problems = (*report.problems, *(notes.problems if notes else ()))
    tree: dict[str, Any] = {
        **to_json(report),
        **{outcome: report.count(outcome) for outcome in get_args(Outcome)},
        "messages": report.messages,
        "problems": to_json(problems),
    }
    for session in tree["sessions"]:
        session["sessionId"] = session.pop("id")
    if notes:
        tree["notes"] = {name: value for name, value in to_json(notes).items() if name != "problems"}
    return tree

"""kept import openclaw | claude-code | codex | pi"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from kept.cli.output import echo, json_option, plural, print_json, style, warn
from kept.cli.root import Globals
from kept.records import Problem

if TYPE_CHECKING:
    from kept.config import LoadedConfig
    from kept.sessions.importers.import_run import Format
    from kept.sessions.importers.report import ImportReport, SessionOutcome
    from kept.workspace.adopt import NotesAdopted

_PROBLEMS_SHOWN = 50
_NAMES_SHOWN = 5
_FAILED = 9

_dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would be done and change nothing.")
_path_argument = click.argument("path", metavar="PATH", type=click.Path())


@click.group("import")
def command() -> None:
    """Bring in conversations from other programs. PATH is a transcript or a folder of them, and is only read.

    Running it again takes in what is new and nothing twice. For another agent: kept --agent NAME import …
    """


@command.command("openclaw")
@_path_argument
@click.option("--instructions", is_flag=True, help="Copy SOUL.md, AGENTS.md and USER.md too.")
@_dry_run_option
@json_option
@click.pass_obj
def openclaw(options: Globals, path: str, instructions: bool, dry_run: bool, as_json: bool) -> None:
    """Bring in OpenClaw's sessions from PATH, such as ~/.openclaw, and its notes where none has their name."""
    loaded = options.load()
    report = _import(loaded, "openclaw", path, dry_run)
    folders = _workspaces(path, loaded.config.agent_id)
    notes = [_adopt_notes(loaded, folder, dry_run=dry_run, instructions=instructions) for folder in folders]
    _show(report, notes, as_json=as_json)


@command.command("claude-code")
@_path_argument
@_dry_run_option
@json_option
@click.pass_obj
def claude_code(options: Globals, path: str, dry_run: bool, as_json: bool) -> None:
    """Bring in Claude Code's sessions from PATH, such as ~/.claude/projects."""
    _show(_import(options.load(), "claude-code", path, dry_run), [], as_json=as_json)


@command.command("codex")
@_path_argument
@_dry_run_option
@json_option
@click.pass_obj
def codex(options: Globals, path: str, dry_run: bool, as_json: bool) -> None:
    """Bring in Codex's sessions from PATH, such as ~/.codex/sessions."""
    _show(_import(options.load(), "codex", path, dry_run), [], as_json=as_json)


@command.command("pi")
@_path_argument
@_dry_run_option
@json_option
@click.pass_obj
def pi(options: Globals, path: str, dry_run: bool, as_json: bool) -> None:
    """Bring in pi's sessions from PATH, such as ~/.pi/agent/sessions."""
    _show(_import(options.load(), "pi", path, dry_run), [], as_json=as_json)


def _import(loaded: LoadedConfig, format_name: Format, path: str, dry_run: bool) -> ImportReport:
    from kept.app import open_sessions
    from kept.sessions.importers.import_run import import_sessions

    with open_sessions(loaded) as sessions:
        return import_sessions(sessions, format_name, path, dry_run=dry_run)


def _workspaces(path: str, agent_id: str) -> list[str]:
    """The notes that belong to an agent of OpenClaw, below its folder or at the path itself."""
    from kept.workspace.adopt import is_workspace

    root = os.path.abspath(os.path.expanduser(path))
    own = os.path.join(root, f"workspace-{agent_id}")
    places = [own if os.path.isdir(own) else os.path.join(root, "workspace"), root]
    return [place for place in places if is_workspace(place)][:1]


def _adopt_notes(loaded: LoadedConfig, folder: str, *, dry_run: bool, instructions: bool) -> NotesAdopted:
    from kept.workspace.adopt import adopt_notes
    from kept.workspace.workspace import Workspace

    config = loaded.config
    return adopt_notes(
        Workspace.at(config.workspace),
        folder,
        max_bytes=config.memory_search.max_file_bytes,
        dry_run=dry_run,
        instructions=instructions,
    )


# showing


def _show(report: ImportReport, notes: list[NotesAdopted], *, as_json: bool) -> None:
    if as_json:
        print_json(_report_json(report, notes))
    else:
        _show_report(report)
        for one in notes:
            _show_notes(one)
        _warn_of(report, notes)
    if report.count("failed"):
        raise click.exceptions.Exit(_FAILED)


def _report_json(report: ImportReport, notes: list[NotesAdopted]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "format": report.format,
        "dryRun": report.dry_run,
        "files": report.files,
        "imported": report.count("imported"),
        "updated": report.count("updated"),
        "unchanged": report.count("unchanged"),
        "failed": report.count("failed"),
        "messages": report.messages,
        "kinds": [{"kind": one.kind, "became": one.became, "count": one.count} for one in report.kinds],
        "sessions": [_session_json(one) for one in report.sessions],
        "ignored": _problems_json(report.ignored),
        "problems": _problems_json((*report.problems, *(problem for one in notes for problem in one.problems))),
    }
    for one in notes:
        shown["notes"] = {
            "copied": list(one.copied),
            "same": list(one.same),
            "conflicts": list(one.conflicts),
            "leftOut": list(one.left_out),
            "heldBack": list(one.held_back),
        }
    return shown


def _session_json(one: SessionOutcome) -> dict[str, Any]:
    return {
        "sessionId": one.id,
        "source": one.source,
        "outcome": one.outcome,
        "messages": one.messages,
        "added": one.added,
        "reason": one.reason,
        "kinds": [{"kind": kind.kind, "became": kind.became, "count": kind.count} for kind in one.kinds],
    }


def _problems_json(problems: tuple[Problem, ...]) -> list[dict[str, str]]:
    return [{"path": one.path, "reason": one.reason} for one in problems]


def _show_report(report: ImportReport) -> None:
    would = "Would be: " if report.dry_run else ""
    outcomes = (("imported", "imported"), ("updated", "updated"), ("unchanged", "here already"), ("failed", "failed"))
    counts = ", ".join(f"{report.count(name)} {word}" for name, word in outcomes if report.count(name))  # type: ignore[arg-type]
    total = f"{plural(len(report.sessions), 'session')} with {plural(report.messages, 'message')}"
    echo(style(f"{would}{total}: {counts}." if report.sessions else "No sessions were found.", bold=True))
    for one in report.kinds:
        echo(f"  {one.count:>7,}  {one.kind} {style(f'→ {one.became}', dim=True)}")


def _show_notes(notes: NotesAdopted) -> None:
    echo(f"Notes: {len(notes.copied)} copied, {len(notes.same)} here already, {len(notes.conflicts)} in conflict.")


def _warn_of(report: ImportReport, notes: list[NotesAdopted]) -> None:
    said = [f"{one.source}: session {one.id} failed: {one.reason}" for one in report.sessions if one.reason]
    said += [f"{one.path}: {one.reason}" for one in (*report.problems, *report.ignored)]
    for one in notes:
        said += [f"{problem.path}: {problem.reason}" for problem in one.problems]
        said += [f"{name}: is here with another text, which stays" for name in one.conflicts]
        if one.left_out:
            said.append(f"not notes that Kept searches, so left out: {_names(one.left_out)}")
        if one.held_back:
            said.append(
                f"stand in the agent's system prompt, so not copied without --instructions: {_names(one.held_back)}"
            )
    for line in said[:_PROBLEMS_SHOWN]:
        warn(f"{line.rstrip('.')}.")
    if len(said) > _PROBLEMS_SHOWN:
        warn(f"{len(said) - _PROBLEMS_SHOWN:,} more; --json shows them all.")


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more

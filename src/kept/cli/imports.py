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
    from kept.sessions.importers.report import ImportReport, KindCount, SessionOutcome
    from kept.workspace.adopt import NotesAdopted

_PROBLEMS_SHOWN = 50
_NAMES_SHOWN = 5
_FAILED = 9

_dry_run_option = click.option("--dry-run", is_flag=True, help="Report what would be done and change nothing.")
_path_argument = click.argument("path", metavar="PATH", type=click.Path())


@click.group("import")
def command() -> None:
    """Import conversations from other programs. PATH is a transcript or a folder of them, and is only read.

    Running it again imports only what is new. For another agent: kept --agent NAME import …
    """


@command.command("openclaw")
@_path_argument
@click.option("--instructions", is_flag=True, help="Copy SOUL.md, AGENTS.md and USER.md too.")
@_dry_run_option
@json_option
@click.pass_obj
def openclaw(options: Globals, path: str, instructions: bool, dry_run: bool, as_json: bool) -> None:
    """Import OpenClaw's sessions from PATH, such as ~/.openclaw, and its notes unless a note has the same name."""
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
    """Import Claude Code's sessions from PATH, such as ~/.claude/projects."""
    _show(_import(options.load(), "claude-code", path, dry_run), [], as_json=as_json)


@command.command("codex")
@_path_argument
@_dry_run_option
@json_option
@click.pass_obj
def codex(options: Globals, path: str, dry_run: bool, as_json: bool) -> None:
    """Import Codex's sessions from PATH, such as ~/.codex/sessions."""
    _show(_import(options.load(), "codex", path, dry_run), [], as_json=as_json)


@command.command("pi")
@_path_argument
@_dry_run_option
@json_option
@click.pass_obj
def pi(options: Globals, path: str, dry_run: bool, as_json: bool) -> None:
    """Import pi's sessions from PATH, such as ~/.pi/agent/sessions."""
    _show(_import(options.load(), "pi", path, dry_run), [], as_json=as_json)


def _import(loaded: LoadedConfig, format_name: Format, path: str, dry_run: bool) -> ImportReport:
    from kept.app import open_sessions
    from kept.sessions.importers.import_run import import_sessions

    with open_sessions(loaded) as sessions:
        return import_sessions(sessions, format_name, path, dry_run=dry_run)


def _workspaces(path: str, agent_id: str) -> list[str]:
    """Return the workspace of an agent of OpenClaw: below its folder, or the path itself. Empty if there is none."""
    from kept.workspace.adopt import is_workspace

    root = os.path.abspath(os.path.expanduser(path))
    own = os.path.join(root, f"workspace-{agent_id}")
    candidates = [own if os.path.isdir(own) else os.path.join(root, "workspace"), root]
    return [folder for folder in candidates if is_workspace(folder)][:1]


def _adopt_notes(loaded: LoadedConfig, folder: str, *, dry_run: bool, instructions: bool) -> NotesAdopted:
    from kept.workspace.adopt import adopt_notes
    from kept.workspace.workspace import Workspace

    config = loaded.config
    return adopt_notes(
        Workspace.of(config),
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
        for adopted in notes:
            _show_notes(adopted)
        _warn_of(report, notes)
    if report.count("failed"):
        raise click.exceptions.Exit(_FAILED)


def _report_json(report: ImportReport, notes: list[NotesAdopted]) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "format": report.format,
        "dryRun": report.dry_run,
        "files": report.files,
        "imported": report.count("imported"),
        "updated": report.count("updated"),
        "unchanged": report.count("unchanged"),
        "deleted": report.count("deleted"),
        "failed": report.count("failed"),
        "messages": report.messages,
        "kinds": _kinds_json(report.kinds),
        "sessions": [_session_json(session) for session in report.sessions],
        "ignored": _problems_json(report.ignored),
        "problems": _problems_json((*report.problems, *(problem for adopted in notes for problem in adopted.problems))),
    }
    for adopted in notes:
        tree["notes"] = {
            "copied": list(adopted.copied),
            "same": list(adopted.same),
            "conflicts": list(adopted.conflicts),
            "leftOut": list(adopted.left_out),
            "heldBack": list(adopted.held_back),
        }
    return tree


def _session_json(session: SessionOutcome) -> dict[str, Any]:
    return {
        "sessionId": session.id,
        "source": session.source,
        "outcome": session.outcome,
        "messages": session.messages,
        "added": session.added,
        "reason": session.reason,
        "kinds": _kinds_json(session.kinds),
    }


def _kinds_json(kinds: tuple[KindCount, ...]) -> list[dict[str, Any]]:
    return [{"kind": kind.kind, "became": kind.became, "count": kind.count} for kind in kinds]


def _problems_json(problems: tuple[Problem, ...]) -> list[dict[str, str]]:
    return [{"path": problem.path, "reason": problem.reason} for problem in problems]


def _show_report(report: ImportReport) -> None:
    would = "Would be: " if report.dry_run else ""
    outcomes = (
        ("imported", "imported"),
        ("updated", "updated"),
        ("unchanged", "here already"),
        ("deleted", f"left out because you deleted {'it' if report.count('deleted') == 1 else 'them'}"),
        ("failed", "failed"),
    )
    counts = ", ".join(f"{report.count(name)} {word}" for name, word in outcomes if report.count(name))  # type: ignore[arg-type]
    total = f"{plural(len(report.sessions), 'session')} with {plural(report.messages, 'message')}"
    echo(style(f"{would}{total}: {counts}." if report.sessions else "No sessions were found.", bold=True))
    for kind in report.kinds:
        echo(f"  {kind.count:>7,}  {kind.kind} {style(f'→ {kind.became}', dim=True)}")

    if report.count("deleted"):
        echo("'kept sessions list --deleted' shows deleted sessions, 'kept sessions restore ID' brings one back.")


def _show_notes(notes: NotesAdopted) -> None:
    echo(f"Notes: {len(notes.copied)} copied, {len(notes.same)} here already, {len(notes.conflicts)} in conflict.")


def _warn_of(report: ImportReport, notes: list[NotesAdopted]) -> None:
    failed = (session for session in report.sessions if session.reason)
    warnings = [f"{session.source}: session {session.id} failed: {session.reason}" for session in failed]
    warnings += [f"{problem.path}: {problem.reason}" for problem in (*report.problems, *report.ignored)]
    for adopted in notes:
        warnings += _note_warnings(adopted)
    for warning in warnings[:_PROBLEMS_SHOWN]:
        warn(f"{warning.rstrip('.')}.")
    if len(warnings) > _PROBLEMS_SHOWN:
        warn(f"{len(warnings) - _PROBLEMS_SHOWN:,} more; --json shows them all.")


def _note_warnings(notes: NotesAdopted) -> list[str]:
    warnings = [f"{problem.path}: {problem.reason}" for problem in notes.problems]
    warnings += [f"{name}: exists here with another text, which is kept" for name in notes.conflicts]
    if notes.left_out:
        warnings.append(f"not notes that Kept searches, so left out: {_names(notes.left_out)}")
    if notes.held_back:
        names = _names(notes.held_back)
        warnings.append(f"part of the agent's system prompt, so not copied without --instructions: {names}")
    return warnings


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more

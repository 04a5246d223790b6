"""Report of an import: for people, and as JSON."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, get_args

import click

from kept.cli.output import echo, print_json, style, warn
from kept.errors import UsageError
from kept.records import Problem
from kept.tools.record_json import to_json
from kept.wording import plural

if TYPE_CHECKING:
    from kept.sessions.importers.draft_writer import ImportReport
    from kept.workspace.adopt import NotesAdopted

_PROBLEMS_SHOWN = 50
_NAMES_SHOWN = 5
FAILED = 9


def show_report(report: ImportReport, path: str, notes: list[NotesAdopted], *, as_json: bool) -> None:
    """Print a report. Raise UsageError if nothing of a file was imported."""
    if not report.sessions and not notes and os.path.isfile(path):
        raise _nothing_error(report, path)
    if as_json:
        print_json(report_json(report, notes))
    else:
        print_report(report, notes)
    if report.count("failed"):
        raise click.exceptions.Exit(FAILED)


def _nothing_error(report: ImportReport, path: str) -> UsageError:
    first = next(iter((*report.problems, *report.ignored)), Problem(path, "holds no conversation"))
    hint = "'kept import --help' lists the formats."
    return UsageError(f"{first.path}: {first.reason}; nothing was imported.", hint=hint)


def print_report(report: ImportReport, notes: list[NotesAdopted]) -> None:
    would = "Would be: " if report.dry_run else ""
    outcomes = (
        ("imported", "imported"),
        ("updated", "updated"),
        ("unchanged", "here already"),
        ("deleted", f"left out because you deleted {'it' if report.count('deleted') == 1 else 'them'}"),
        ("failed", "failed"),
    )
    counts = ", ".join(f"{report.count(name):,} {word}" for name, word in outcomes if report.count(name))  # type: ignore[arg-type]
    total = f"{plural(len(report.sessions), 'session')} with {plural(report.messages, 'message')}"
    echo(style(f"{would}{total}: {counts}." if report.sessions else "No sessions were found.", bold=True))
    if report.count("deleted"):
        echo("'kept sessions list --deleted' shows deleted sessions, 'kept sessions restore ID' brings one back.")
    for adopted in notes:
        echo(
            f"Notes: {len(adopted.copied)} copied, {len(adopted.same)} here already,"
            f" {len(adopted.conflicts)} in conflict."
        )
    _warn_of(report, notes)


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


# JSON


def report_json(report: ImportReport, notes: list[NotesAdopted]) -> dict[str, Any]:
    from kept.sessions.importers.draft_writer import Outcome

    outcomes: tuple[Outcome, ...] = get_args(Outcome)
    problems = (*report.problems, *(problem for adopted in notes for problem in adopted.problems))
    tree: dict[str, Any] = {
        **to_json(report),
        **{outcome: report.count(outcome) for outcome in outcomes},
        "messages": report.messages,
        "problems": to_json(problems),
    }
    for session in tree["sessions"]:
        session["sessionId"] = session.pop("id")
    for adopted in notes:
        tree["notes"] = {name: value for name, value in to_json(adopted).items() if name != "problems"}
    return tree

"""kept hook session-start | capture: what Claude Code runs by itself. It never fails because of us."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

from kept.cli.output import echo
from kept.cli.root import Globals
from kept.errors import KeptError

_MAX_INPUT_BYTES = 10_000_000


@click.group("hook")
def command() -> None:
    """Run by Claude Code's hooks ('kept connect claude-code'). Always ends with 0; what went wrong is one line."""


@command.command("session-start")
@click.pass_obj
def session_start(options: Globals) -> None:
    """Print recent notes and the end of the last conversation, for a session that begins."""
    try:
        told = _told()
        context = _context(options, told)
        if context:
            shape = {"hookEventName": "SessionStart", "additionalContext": context}
            echo(json.dumps({"hookSpecificOutput": shape}))
    except Exception as exc:  # noqa: BLE001  (the client's session is worth more than our reasons)
        _complain(exc)


@command.command("capture")
@click.pass_obj
def capture(options: Globals) -> None:
    """Take in what was said in a session so far. No model is asked."""
    try:
        _capture(options, _told())
    except Exception as exc:  # noqa: BLE001  (the client's session is worth more than our reasons)
        _complain(exc)


def _told() -> dict[str, Any]:
    """What Claude Code says about the session, as JSON on standard input."""
    raw = b"" if sys.stdin.isatty() else sys.stdin.buffer.read(_MAX_INPUT_BYTES)
    try:
        told = json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise KeptError("what the hook was told is not a JSON object")
    return told


def _context(options: Globals, told: dict[str, Any]) -> str:
    from kept.app import open_toolbox
    from kept.connect.recent import recent_context

    loaded = options.load()
    if not os.path.isdir(loaded.config.workspace):
        return ""
    toolbox = open_toolbox(loaded)
    try:
        return recent_context(
            toolbox.memory, toolbox.sessions, cwd=_text(told, "cwd"), current=_text(told, "session_id")
        )
    finally:
        toolbox.close()


def _capture(options: Globals, told: dict[str, Any]) -> None:
    from kept.sessions.importers.import_run import import_sessions

    path = _text(told, "transcript_path")
    if not path or not path.endswith(".jsonl"):
        raise KeptError("the hook was told of no transcript")
    if not os.path.isfile(os.path.expanduser(path)):
        return  # a session in which nothing was said has none
    with options.sessions() as sessions:
        report = import_sessions(sessions, "claude-code", path)
    for one in report.sessions:
        if one.outcome == "failed":
            _complain(KeptError(f"session {one.id} was not taken in: {one.reason}"))


def _text(told: dict[str, Any], name: str) -> str | None:
    value = told.get(name)
    return value if isinstance(value, str) and value else None


def _complain(error: Exception) -> None:
    """One line that Claude Code shows with --debug; it goes on without us."""
    echo(f"kept: {' '.join(str(error).split()) or type(error).__name__}", err=True)

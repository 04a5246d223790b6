"""kept hook session-start | capture: run by Claude Code. An error here must not disturb its session."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

from kept.cli.connect.claude_code_plugin import Sent, default_sent
from kept.cli.output import echo, send_option
from kept.cli.root import Globals
from kept.errors import KeptError

_MAX_INPUT_BYTES = 10_000_000


@click.group("hook")
def command() -> None:
    """Run a command for a hook of Claude Code.

    'kept connect claude-code' installs them. They always exit with 0; an error is one line on standard error.
    """


@command.command("session-start")
@send_option
@click.pass_obj
def session_start(options: Globals, send: Sent | None) -> None:
    """Print context for a new session: what 'kept connect' was told to send."""
    try:
        context = _context(options, _read_event(), send)
        if context:
            shape = {"hookEventName": "SessionStart", "additionalContext": context}
            echo(json.dumps({"hookSpecificOutput": shape}))
    except Exception as exc:  # noqa: BLE001  (the client's session must go on)
        _report(exc)


@command.command("capture")
@click.pass_obj
def capture(options: Globals) -> None:
    """Copy the conversation so far into Kept. No model is called."""
    try:
        _capture(options, _read_event())
    except Exception as exc:  # noqa: BLE001  (the client's session must go on)
        _report(exc)


def _read_event() -> dict[str, Any]:
    """Read the description of the session, which Claude Code writes to standard input as JSON."""
    raw = b"" if sys.stdin.isatty() else sys.stdin.buffer.read(_MAX_INPUT_BYTES)
    try:
        event = json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise KeptError("standard input is not a JSON object")
    return event


def _context(options: Globals, event: dict[str, Any], send: Sent | None) -> str:
    from kept.cli.connect.recent import recent_context
    from kept.gateway.app import open_toolbox
    from kept.notes.projects import find_project
    from kept.notes.workspace import Workspace

    loaded = options.load_finished()
    if not os.path.isdir(loaded.config.workspace):
        return ""
    cwd = _text(event, "cwd")
    project = find_project(Workspace.of(loaded.config), cwd) if cwd else None
    toolbox = open_toolbox(loaded, project=project)
    try:
        sent = send or default_sent(toolbox.memory.workspace.layout)
        current = _text(event, "session_id")
        return recent_context(toolbox.memory, toolbox.sessions, cwd=cwd, current=current, sent=sent)
    finally:
        toolbox.close()


def _capture(options: Globals, event: dict[str, Any]) -> None:
    from kept.sessions.importers.import_run import import_sessions

    path = _text(event, "transcript_path")
    if not path or not path.endswith(".jsonl"):
        raise KeptError("the event names no transcript")
    if not os.path.isfile(os.path.expanduser(path)):
        return  # a session without messages has no transcript
    with options.sessions() as sessions:
        report = import_sessions(sessions, "claude-code", path)
    for session in report.sessions:
        if session.outcome == "failed":
            _report(KeptError(f"session {session.id} was not imported: {session.reason}"))


def _text(event: dict[str, Any], name: str) -> str | None:
    value = event.get(name)
    return value if isinstance(value, str) and value else None


def _report(error: Exception) -> None:
    """Print one line, which Claude Code shows with --debug."""
    echo(f"kept: {' '.join(str(error).split()) or type(error).__name__}", err=True)

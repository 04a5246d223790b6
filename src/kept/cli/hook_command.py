"""kept hook session-start | capture: run by Claude Code. An error here must not disturb its session."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import click

from kept.agent.recent_context import Sent
from kept.cli.options import kept_command, send_option
from kept.cli.output import echo
from kept.cli.root import Globals
from kept.client.remote_sessions import RemoteSessions
from kept.errors import KeptError

_MAX_INPUT_BYTES = 10_000_000


@click.group("hook")
def command() -> None:
    """Run a command for a hook of Claude Code.

    'kept connect claude-code' installs them. They always exit with 0; an error is one line on standard error.
    """


@kept_command("session-start", command)
@send_option
def session_start(options: Globals, send: Sent | None) -> None:
    """Print context for a new session: what 'kept connect' was told to send."""
    with _reporting():
        event = _read_event()
        cwd, current = _text(event, "cwd"), _text(event, "session_id")
        if home := options.login():
            with RemoteSessions.open(home) as sessions:
                context = sessions.recent_context(cwd=cwd, current=current, sent=send)
        else:
            context = _read_here(options, cwd, current, send)
        if context:
            shape = {"hookEventName": "SessionStart", "additionalContext": context}
            echo(json.dumps({"hookSpecificOutput": shape}))


def _read_here(options: Globals, cwd: str | None, current: str | None, send: Sent | None) -> str:
    from kept.agent.recent_context import recent_context
    from kept.gateway.app import open_toolbox
    from kept.notes.projects import find_project
    from kept.notes.workspace import Workspace

    loaded = options.load()
    workspace = Workspace.of(loaded.config)
    if not workspace.storage.exists():
        return ""
    project = find_project(workspace, cwd) if cwd else None
    with closing(open_toolbox(loaded, project=project)) as toolbox:
        return recent_context(toolbox.memory, toolbox.sessions, cwd=cwd, current=current, sent=send)


@kept_command("capture", command)
def capture(options: Globals) -> None:
    """Copy the conversation so far into Kept. No model is called."""
    from kept.sessions.importers.import_run import import_sessions

    with _reporting():
        path = _text(_read_event(), "transcript_path")
        if not path or not path.endswith(".jsonl"):
            raise KeptError("the event names no transcript")
        if not os.path.isfile(os.path.expanduser(path)):
            return  # a session without messages has no transcript
        with options.sessions() as sessions:
            report = import_sessions(sessions, "claude-code", path)
        for session in report.sessions:
            if session.outcome == "failed":
                raise KeptError(f"session {session.id} was not imported: {session.reason}")


@contextmanager
def _reporting() -> Iterator[None]:
    """Turn an error into one line, which Claude Code shows with --debug: the client's session must go on."""
    try:
        yield
    except Exception as exc:  # noqa: BLE001
        echo(f"kept: {' '.join(str(exc).split()) or type(exc).__name__}", err=True)


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


def _text(event: dict[str, Any], name: str) -> str | None:
    value = event.get(name)
    return value if isinstance(value, str) and value else None

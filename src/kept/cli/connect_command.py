"""kept connect"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator

import click

from kept.agent.recent_context import Sent, default_sent
from kept.cli.connect.clients import CLIENTS, SENT, ClientEnvironment, Scope
from kept.cli.connect.connection import Change, Connection
from kept.cli.options import kept_command, send_option, switch
from kept.cli.output import echo, print_json, warn_all
from kept.cli.root import Globals
from kept.cli.terminal_layout import colour_diff
from kept.gateway.app import client_command
from kept.notes.projects import find_project
from kept.notes.workspace import Workspace


@kept_command("connect")
@click.argument("client", type=click.Choice([*CLIENTS, "print"]), metavar="CLIENT")
@click.option(
    "--scope", type=click.Choice(["user", "project"]), default="user", help="For your account, or for one project."
)
@send_option
@switch("--dry-run", "Show the changes without making them.")
@switch("--undo", "Remove the entry again.")
def command(options: Globals, client: str, scope: Scope, send: Sent | None, dry_run: bool, undo: bool) -> None:
    """Connect another program to this memory.

    CLIENT is claude-code, claude-desktop, cursor, codex, vscode or openclaw. Adds an entry that starts 'kept mcp' to
    its settings, and changes nothing else in them. 'kept connect print' prints the entry, for other programs.

    With --scope project, it is an entry in the current folder, for the notes of its project if there is one: 'kept init
    --project' makes it.

    Claude Code also gets hooks. One sends notes to its model when a session begins: you are asked which.

    \b
    kept connect claude-code
    kept connect cursor --scope project
    """
    loaded = options.load()
    server = client_command(loaded)
    if client == "print":
        print_json({"mcpServers": {"kept": {"command": server.program, "args": server.args("mcp")}}})
        return
    environment = ClientEnvironment(os.path.expanduser("~"), os.getcwd(), sys.platform, os.environ)
    connection = Connection(CLIENTS[client], scope, environment, kept_home=loaded.config.home)
    title = connection.client.title
    project = find_project(Workspace.of(loaded.config), os.curdir) if scope == "project" else None
    sent = send or default_sent(loaded.config.agent.workspace_layout)
    if connection.with_plugin and not any((send, undo, options.as_json)):
        sent = _ask_sent(title, sent)
    changes = connection.plan(server, project=project, sent=sent, undo=undo)
    copy = None if dry_run else connection.apply(changes, undo=undo)
    shapes = [{"path": change.path, "kind": change.kind} for change in changes]
    shape = {"client": client, "scope": scope, "dryRun": dry_run, "undo": undo, "backup": copy, "project": project}
    options.report({**shape, "changes": shapes}, _diffs(connection, changes, undo=undo))
    if options.as_json:
        return
    if connection.with_plugin and not undo:
        echo(f"{title} sends when a session begins: {SENT[sent]}.", err=True)
    if dry_run:
        echo("Nothing was changed (--dry-run).", err=True)
    elif any(change.kind != "unchanged" for change in changes):
        done = "is no longer connected." if undo else f"is connected. {connection.client.next_step}"
        echo(f"{title} {done}", err=True)
    if copy and not undo:
        echo(f"The old settings were saved to {copy}.", err=True)
    warn_all(() if undo else _missing(Workspace.of(loaded.config)))


def _diffs(connection: Connection, changes: list[Change], *, undo: bool) -> Iterator[str]:
    if all(change.kind == "unchanged" for change in changes):
        state = "is not connected" if undo else "is connected already"
        yield f"{connection.client.title} {state}; nothing to do."
    for change in changes:
        if change.kind != "unchanged":
            yield colour_diff("\n".join(change.diff()))


def _ask_sent(title: str, default: Sent) -> Sent:
    """Return what the client shall send to its model when a session begins, as the person chooses at a terminal."""
    if not sys.stdin.isatty():
        return default
    echo(f"When a session begins, {title} can send some of your notes to its model:", err=True)
    for choice, text in SENT.items():
        echo(f"  {choice}: {text}", err=True)
    chosen: Sent = click.prompt("Which?", type=click.Choice([*SENT]), default=default, err=True)
    return chosen


def _missing(workspace: Workspace) -> Iterator[str]:
    """Yield what the client needs and does not have yet."""
    if importlib.util.find_spec("mcp") is None:
        yield "'kept mcp' needs the package 'mcp'. Install it: pip install 'kept[mcp]'"
    if not workspace.storage.exists():
        yield f"There is no workspace at {workspace.root} yet. Create it with 'kept init'."

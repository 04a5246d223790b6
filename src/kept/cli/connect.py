"""kept connect"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from kept.cli.output import echo, json_option, print_json, style, warn
from kept.cli.root import Globals

if TYPE_CHECKING:
    from kept.connect.connection import Change, Connection
    from kept.server_command import ServerCommand

_CLIENTS = ("claude-code", "claude-desktop", "cursor", "codex", "vscode", "openclaw")


@click.command("connect")
@click.argument("client", type=click.Choice([*_CLIENTS, "print"]))
@click.option("--scope", type=click.Choice(["user", "project"]), default="user", help="For you, or for one project.")
@click.option("--project", metavar="DIR", default=".", help="The project's folder (default: this one).")
@click.option("--dry-run", is_flag=True, help="Show what would change and change nothing.")
@click.option("--undo", is_flag=True, help="Take it out again.")
@json_option
@click.pass_obj
def command(options: Globals, client: str, scope: str, project: str, dry_run: bool, undo: bool, as_json: bool) -> None:
    """Tell CLIENT of this memory: its settings get an entry that starts 'kept mcp'. All else in them stays.

    'kept connect print' shows the entry, for clients that are not named here.
    """
    from kept.server_command import client_command

    loaded = options.load()
    start = client_command(loaded)
    if client == "print":
        _print_entry(start)
        return
    connection = _connection(client, scope, project, loaded.config.home)
    changes = connection.plan_undo() if undo else connection.plan(start)
    copy = None
    if not dry_run and undo:
        connection.apply_undo(changes)
    elif not dry_run:
        copy = connection.apply(changes)
    if as_json:
        print_json(_shape(connection, changes, copy, dry_run=dry_run, undo=undo))
    else:
        _show(connection, changes, copy, dry_run=dry_run, undo=undo)
        if not undo:
            for lack in _lacks(loaded.config.workspace):
                warn(lack)


def _lacks(workspace: str) -> Iterator[str]:
    """What the client will run into, which is better known now."""
    if importlib.util.find_spec("mcp") is None:
        yield "'kept mcp' needs the package 'mcp'. Install it: pip install 'kept[mcp]'"
    if not os.path.isdir(workspace):
        yield f"There is no workspace at {workspace} yet. Create it with 'kept init'."


def _connection(client: str, scope: Any, project: str, kept_home: str) -> Connection:
    from kept.connect.clients import CLIENTS, ClientEnvironment
    from kept.connect.connection import Connection

    home = os.path.expanduser("~")
    around = ClientEnvironment(home, os.path.abspath(project), sys.platform, os.environ)
    return Connection(CLIENTS[client], scope, around, kept_home=kept_home)


def _print_entry(start: ServerCommand) -> None:
    entry = {"mcpServers": {"kept": {"command": start.program, "args": start.args("mcp")}}}
    print_json(entry)


def _shape(
    connection: Connection, changes: list[Change], copy: str | None, *, dry_run: bool, undo: bool
) -> dict[str, Any]:
    return {
        "client": connection.client.name,
        "scope": connection.scope,
        "dryRun": dry_run,
        "undo": undo,
        "changes": [{"path": one.path, "kind": one.kind} for one in changes],
        "backup": copy,
    }


def _show(connection: Connection, changes: list[Change], copy: str | None, *, dry_run: bool, undo: bool) -> None:
    title = connection.client.title
    if all(one.kind == "unchanged" for one in changes):
        state = "is not connected" if undo else "is connected already"
        echo(f"{title} {state}; nothing to do.")
        return
    for change in changes:
        for line in change.diff():
            echo(_coloured(line))
    if dry_run:
        echo("Nothing was changed (--dry-run).", err=True)
    elif undo:
        echo(f"{title} is no longer connected.", err=True)
    else:
        echo(f"{title} is connected. {connection.client.next_step}", err=True)
        if copy:
            echo(f"What was there before is kept in {copy}.", err=True)


def _coloured(line: str) -> str:
    if line.startswith(("+++", "---")):
        return style(line, bold=True)
    return style(line, fg="green") if line.startswith("+") else style(line, fg="red") if line.startswith("-") else line

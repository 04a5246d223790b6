"""kept init"""

from __future__ import annotations

import os

import click

from kept.cli.output import echo, json_option, print_json, style
from kept.cli.root import Globals
from kept.config import Config
from kept.config.layers import default_workspace
from kept.durable import write_atomic
from kept.errors import UsageError
from kept.limits import is_utf8
from kept.workspace.notes import create_note
from kept.workspace.workspace import Workspace

_NOTES = {
    "MEMORY.md": "# Memory\n",
    "USER.md": "# User\n",
}


@click.command("init")
@click.argument("workspace", required=False)
@json_option
@click.pass_obj
def command(options: Globals, workspace: str | None, as_json: bool) -> None:
    """Create a workspace and a settings file.

    WORKSPACE is the folder of the notes (default: ~/.kept/workspace). Files that exist are not changed.
    """
    loaded = options.load(workspace=workspace)
    root = loaded.config.workspace
    if not is_utf8(root):
        raise UsageError("The path of the workspace is not valid UTF-8.", hint="Choose a folder with another name.")
    notes = Workspace.at(root)
    notes.make()
    created = [name for name, text in _NOTES.items() if create_note(notes, name, text)]
    config = loaded.user_file.path
    if not os.path.exists(config):
        write_atomic(config, _config_text(loaded.config).encode())
        created.append(config)
    is_named = options.load(workspace=workspace).config.trusts_workspace
    if as_json:
        print_json({"workspace": root, "config": config, "created": created})
        return
    echo(f"Workspace: {style(root, fg='cyan')}")
    echo(f"Settings:  {style(config, fg='cyan')}")
    echo(f"Created:   {', '.join(created)}" if created else "Everything exists already.")
    if not is_named:
        echo("\nThe settings do not name this workspace. To use it without --workspace, add to agents.list:")
        echo(_entry(loaded.config))
    echo("\nNext: kept add 'something worth remembering', then kept search 'worth remembering'.")


def _config_text(config: Config) -> str:
    """Return the text of a new settings file. It names the workspace only if that is not the default, and for this
    agent only: under `defaults`, every agent would share it."""
    comment = "# Settings of Kept. 'kept config explain' lists all of them with their values.\n"
    if config.workspace == default_workspace(config.home, config.agent_id):
        return comment
    return f"{comment}agents:\n  list:\n{_entry(config)}\n"


def _entry(config: Config) -> str:
    import json

    workspace = json.dumps(config.workspace, ensure_ascii=False)
    return f"    - id: {json.dumps(config.agent_id)}\n      workspace: {workspace}"

"""kept init"""

from __future__ import annotations

import os

import click

from kept.cli.output import json_option, print_json, style
from kept.cli.root import Globals
from kept.durable import write_atomic
from kept.errors import UsageError
from kept.limits import is_storable
from kept.workspace.notes import create_note
from kept.workspace.paths import Workspace

_NOTES = {
    "MEMORY.md": "# Memory\n",
    "USER.md": "# User\n",
}


@click.command("init")
@click.argument("workspace", required=False)
@json_option
@click.pass_obj
def command(options: Globals, workspace: str | None, as_json: bool) -> None:
    """Make a workspace (in WORKSPACE or the default place) and a config.yaml that names it.

    What is already there is left as it is.
    """
    loaded = options.load(workspace=workspace)
    root = loaded.config.workspace
    if not is_storable(root):
        raise UsageError("The path of the workspace is not valid UTF-8.", hint="Choose a folder with another name.")
    place = Workspace.at(root)
    place.make()
    made = [name for name, text in _NOTES.items() if create_note(place, name, text)]
    config = next(where for kind, where, _ in loaded.files if kind == "user")
    if not os.path.exists(config):
        write_atomic(config, _config_text(root).encode())
        made.append(config)
    if as_json:
        print_json({"workspace": root, "config": config, "created": made})
        return
    click.echo(f"Workspace: {style(root, fg='cyan')}")
    click.echo(f"Settings:  {style(config, fg='cyan')}")
    click.echo(f"Made:      {', '.join(made)}" if made else "Everything was there already.")
    click.echo("\nNext: kept add 'something worth remembering', then kept search 'worth remembering'.")


def _config_text(workspace: str) -> str:
    import json

    return (
        "# Settings of Kept. 'kept config explain' lists all of them with their values.\n"
        f"agents:\n  defaults:\n    workspace: {json.dumps(workspace, ensure_ascii=False)}\n"
    )

"""kept mcp"""

from __future__ import annotations

import os

import click

from kept.cli.output import echo, log_to_stderr, person_option
from kept.cli.root import Globals
from kept.config import LoadedConfig
from kept.mcp.transports import DEFAULT_ADDRESS, load_server, parse_address, run_stdio


@click.command("mcp")
@click.option(
    "--http",
    "address",
    metavar="[HOST:PORT]",
    is_flag=False,
    flag_value=DEFAULT_ADDRESS,
    help=f"Serve over HTTP instead of standard input and output (default: {DEFAULT_ADDRESS}).",
)
@click.option("--allow-host", "hosts", metavar="NAME", multiple=True, help="Another host name that clients may use.")
@click.option(
    "--project",
    metavar="NAME",
    help="Remember for this project, or for none. (default: the project of the current folder; with --http, none)",
)
@person_option
@click.pass_obj
def command(
    options: Globals,
    address: str | None,
    hosts: tuple[str, ...],
    project: str | None,
    person: str | None,
) -> None:
    """Serve the memory to agents over MCP.

    Uses standard input and output, unless --http is given. In a project, an agent writes to the notes of the project,
    and finds nothing of other projects.
    """
    log_to_stderr()
    loaded = options.load_finished()
    project = _find_project(loaded, project, is_local=address is None)
    if address is None:
        from kept.app import open_toolbox

        run_stdio(load_server(lambda: open_toolbox(loaded, project=project, person=person), project=project))
        return
    from kept.app import open_model
    from kept.serve.run_server import Preset, run_server

    at = parse_address(address)
    run_server(
        loaded,
        Preset("mcp", at.host, at.port, frozenset({"mcp"}), hosts, project=project, person=person),
        open_model,
        ready=lambda served: echo(f"Serving the memory at {served.url}mcp; stop with Ctrl-C.", err=True),
        report=echo,
    )


def _find_project(loaded: LoadedConfig, name: str | None, *, is_local: bool) -> str | None:
    """Return the project that is named, or that of the folder in which a client on this machine started the server."""
    from kept.workspace.projects import find_project, get_project
    from kept.workspace.workspace import Workspace

    workspace = Workspace.of(loaded.config)
    if name is not None:
        return None if name == "none" else get_project(workspace, name)
    return find_project(workspace, os.curdir) if is_local else None

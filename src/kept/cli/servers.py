"""kept gateway, web, serve and mcp: servers, each a preset of the same one"""

from __future__ import annotations

import logging
import os
import webbrowser
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import click

from kept.cli.background_service import Action, manage_service, service_options
from kept.cli.options import kept_command, option, person_option, switch
from kept.cli.output import echo, log_to_stderr
from kept.cli.root import Globals
from kept.client.mcp_bridge import run_bridge
from kept.client.server_connection import ServerConnection, read_login
from kept.config import LoadedConfig
from kept.errors import UsageError
from kept.server.mcp.transports import load_server, run_stdio

_say = partial(echo, err=True)

if TYPE_CHECKING:
    from kept.server.run_server import ServerAddress


@kept_command("gateway")
@service_options
def gateway_command(options: Globals, service: Action | None) -> None:
    """Answer messages over HTTP, Telegram and Discord, until stopped."""
    if service:
        manage_service(options, ("gateway",), service)
        return
    from kept.gateway.app import open_model
    from kept.server.run_server import gateway_preset, run_server

    log_to_stderr()
    logging.getLogger("kept").setLevel(logging.INFO)
    loaded = options.load()
    preset = gateway_preset(loaded.config)

    def show(address: ServerAddress) -> None:
        if loaded.config.gateway.http.enabled:
            _say(f"HTTP: {address.url}v1/messages{', with a token' if address.needs_token else ''}")
        if "pages" in preset.parts:
            _say(f"Pages: {address.url}, opened by 'kept web'")

    run_server(loaded, preset, open_model, ready=show, report=_say)


@kept_command("web")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on; 0 takes any that is free. [8740]")
@option("--host", "ADDRESS", "Address to listen on. Any but 127.0.0.1 needs a token. [127.0.0.1]")
@switch("--no-open", "Print the link, and do not open a browser.")
def web_command(options: Globals, port: int | None, host: str | None, no_open: bool) -> None:
    """Show the memory in a browser: search, read, edit and tend it.

    Prints a link that opens the pages once, and opens it in a browser. Serves only this machine, until interrupted.

    \b
    kept web
    kept web --no-open --port 8741
    """
    from kept.gateway.app import open_model
    from kept.server.run_server import run_server, web_preset

    log_to_stderr()
    loaded = options.load()

    def show(address: ServerAddress) -> None:
        assert address.link is not None
        echo(f"Open {address.link}")
        if address.is_running:
            echo("The pages are served by another process already.", err=True)
        else:
            echo("The link works once, for 15 minutes. Stop with Ctrl-C.", err=True)
        # A browser in the terminal would hide the output.
        has_display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.uname().sysname == "Darwin"
        if not no_open and (has_display or os.environ.get("BROWSER")):
            with suppress(webbrowser.Error):  # the link is printed
                webbrowser.open(address.link)

    run_server(loaded, web_preset(loaded.config, host, port), open_model, ready=show, report=echo)


@kept_command("serve")
@option("--host", "ADDRESS", "Address to listen on. Any but 127.0.0.1 needs a token. [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on; 0 takes any that is free. [8750]")
@option("--allow-host", "NAME", "Another host name that clients may use.", "hosts", multiple=True)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="How to log. 'json' is one object a line, with a line for each request.",
)
@service_options
def serve_command(
    options: Globals,
    host: str | None,
    port: int | None,
    hosts: tuple[str, ...],
    log_format: str,
    service: Action | None,
) -> None:
    """Serve MCP, the HTTP channel and the pages on one port, until stopped.

    Tokens say who may do what: 'kept token create'.

    \b
    kept serve
    kept serve --host 0.0.0.0 --allow-host memory.example.org --log-format json
    """
    if service:
        manage_service(options, ("serve",), service)
        return
    from kept.gateway.app import open_model
    from kept.server.requests import log_as_json, log_line
    from kept.server.run_server import run_server, serve_preset

    as_json = log_format == "json"
    report = log_line if as_json else _say
    if as_json:
        log_as_json()
    else:
        log_to_stderr()
    loaded = options.load(quietly=as_json)  # as JSON, the process that answers messages finishes an interrupted forget
    for notice in loaded.config.notices if as_json else ():
        log_line(notice)

    def show(address: ServerAddress) -> None:
        report(f"Serving at {address.url}")
        if address.link and not as_json:  # the link lets in whoever reads it, and logs are kept
            echo(f"Open the pages: {address.link}", err=True)

    run_server(loaded, serve_preset(loaded.config, host, port, hosts), open_model, ready=show, report=report)


@kept_command("mcp")
@option("--project", "NAME", "Remember for this project, or for none. (default: the project of the current folder)")
@person_option
def mcp_command(options: Globals, project: str | None, person: str | None) -> None:
    """Serve the memory to agents over MCP, on standard input and output.

    In a project, an agent writes to the notes of the project, and finds nothing of other projects. 'kept serve' serves
    MCP over HTTP.
    """
    if home := options.login():
        if project or person:
            raise UsageError("The server decides what its token sees.", hint="Leave out --project and --person.")
        run_bridge(ServerConnection(read_login(home)))
        return
    from kept.gateway.app import open_toolbox

    log_to_stderr()
    loaded = options.load()
    project = _find_project(loaded, project)
    toolbox = partial(open_toolbox, loaded, project=project, person=person)
    run_stdio(load_server(toolbox, project=project, searches=loaded.config.memory_search.enabled))


def _find_project(loaded: LoadedConfig, name: str | None) -> str | None:
    """Return the project that is named, or that of the folder in which a client on this machine started the server."""
    from kept.notes.projects import find_project, get_project
    from kept.notes.workspace import Workspace

    workspace = Workspace.of(loaded.config)
    if name is not None:
        return None if name == "none" else get_project(workspace, name)
    return find_project(workspace, os.curdir)

"""kept mcp"""

from __future__ import annotations

import click

from kept.cli.output import echo, log_to_stderr
from kept.cli.root import Globals

_DEFAULT = "127.0.0.1:8738"


@click.command("mcp")
@click.option(
    "--http",
    "address",
    metavar="[HOST:PORT]",
    is_flag=False,
    flag_value=_DEFAULT,
    help=f"Serve over HTTP instead of standard input and output (default: {_DEFAULT}).",
)
@click.option("--token", metavar="TOKEN", help="What clients have to send; KEPT_GATEWAY__MCP__TOKEN is less visible.")
@click.option("--allow-host", "hosts", metavar="NAME", multiple=True, help="A further name that it is reached by.")
@click.pass_obj
def command(options: Globals, address: str | None, token: str | None, hosts: tuple[str, ...]) -> None:
    """Serve the memory to agents over MCP, on standard input and output unless --http is given."""
    from kept.app import open_toolbox
    from kept.mcp.transports import load_server, parse_address, require_token, run_http, run_stdio

    log_to_stderr()
    loaded = options.load()
    if address is None:
        run_stdio(load_server(lambda: open_toolbox(loaded)))
        return
    settings = loaded.config.gateway.mcp
    token = token or settings.token
    where = parse_address(address)
    require_token(where, token)
    run_http(
        load_server(lambda: open_toolbox(loaded)),
        where,
        token=token,
        hosts=(*settings.allowed_hosts, *hosts),
        ready=lambda at: echo(f"Serving the memory at {at.url}; stop with Ctrl-C.", err=True),
    )

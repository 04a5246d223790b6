"""kept mcp"""

from __future__ import annotations

import click

from kept.cli.output import echo, log_to_stderr
from kept.cli.root import Globals
from kept.mcp.transports import DEFAULT_ADDRESS, load_server, parse_address, require_token, run_http, run_stdio


@click.command("mcp")
@click.option(
    "--http",
    "address",
    metavar="[HOST:PORT]",
    is_flag=False,
    flag_value=DEFAULT_ADDRESS,
    help=f"Serve over HTTP instead of standard input and output (default: {DEFAULT_ADDRESS}).",
)
@click.option(
    "--token", metavar="TOKEN", help="Token that clients must send. KEPT_GATEWAY__MCP__TOKEN is less visible."
)
@click.option("--allow-host", "hosts", metavar="NAME", multiple=True, help="Another host name that clients may use.")
@click.pass_obj
def command(options: Globals, address: str | None, token: str | None, hosts: tuple[str, ...]) -> None:
    """Serve the memory to agents over MCP.

    Uses standard input and output, unless --http is given.
    """
    from kept.app import open_toolbox

    log_to_stderr()
    loaded = options.load()
    if address is None:
        run_stdio(load_server(lambda: open_toolbox(loaded)))
        return
    settings = loaded.config.gateway.mcp
    token = token or settings.token
    listen_at = parse_address(address)
    require_token(listen_at, token)
    run_http(
        load_server(lambda: open_toolbox(loaded)),
        listen_at,
        token=token,
        hosts=(*settings.allowed_hosts, *hosts),
        ready=lambda at: echo(f"Serving the memory at {at.url}; stop with Ctrl-C.", err=True),
    )

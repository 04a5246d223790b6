"""kept serve"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kept.cli.background_service import Action, manage_service, service_options
from kept.cli.output import echo, log_to_stderr
from kept.cli.root import Globals

if TYPE_CHECKING:
    from kept.config import LoadedConfig
    from kept.serve.run_server import ServerAddress


@click.command("serve")
@click.option("--host", metavar="ADDRESS", help="Address to listen on. Any but 127.0.0.1 needs a token. [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on; 0 takes any that is free. [8750]")
@click.option("--allow-host", "hosts", metavar="NAME", multiple=True, help="Another host name that clients may use.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="How to log. 'json' is one object a line, with a line for each request.",
)
@service_options
@click.pass_obj
def command(
    options: Globals,
    host: str | None,
    port: int | None,
    hosts: tuple[str, ...],
    log_format: str,
    service: Action | None,
) -> None:
    """Serve MCP, the HTTP channel and the pages on one port, until stopped.

    Tokens say who may do what: 'kept token create'.
    """
    if service:
        manage_service(options, ("serve",), service)
        return
    from kept.app import open_model
    from kept.serve.requests import log_as_json, log_request
    from kept.serve.run_server import run_server, serve_preset

    as_json = log_format == "json"
    if as_json:
        log_as_json()
    else:
        log_to_stderr()
    loaded = _load_for_log(options) if as_json else options.load_finished()

    def show(address: ServerAddress) -> None:
        _report(f"Serving at {address.url}", as_json)
        if address.link and not as_json:  # the link lets in whoever reads it, and logs are kept
            echo(f"Open the pages: {address.link}", err=True)

    run_server(
        loaded,
        serve_preset(loaded.config, host, port, hosts),
        open_model,
        ready=show,
        report=lambda line: _report(line, as_json),
        record=log_request if as_json else _ignore,
    )


def _load_for_log(options: Globals) -> LoadedConfig:
    """Load the settings, and log what is wrong with them: standard error has nothing but JSON. A forget that was
    interrupted is finished by the process that answers messages."""
    from kept.cli.streams import remember_secrets
    from kept.serve.requests import log_line

    loaded = options.load_quietly()
    remember_secrets(loaded.config)
    for notice in loaded.config.notices:
        log_line(notice)
    return loaded


def _report(line: str, as_json: bool) -> None:
    if as_json:
        from kept.serve.requests import log_line

        log_line(line)
    else:
        echo(line, err=True)


def _ignore(request: Any) -> None:
    pass

"""kept gateway"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click

from kept.cli.background_service import Action, manage_service, service_options
from kept.cli.output import echo, log_to_stderr
from kept.cli.root import Globals

if TYPE_CHECKING:
    from kept.serve.run_server import ServerAddress


@click.command("gateway")
@service_options
@click.pass_obj
def command(options: Globals, service: Action | None) -> None:
    """Answer messages over HTTP, Telegram and Discord, until stopped."""
    if service:
        manage_service(options, ("gateway",), service)
        return
    from kept.app import open_model
    from kept.serve.run_server import gateway_preset, run_server

    log_to_stderr()
    logging.getLogger("kept").setLevel(logging.INFO)
    loaded = options.load_finished()
    preset = gateway_preset(loaded.config)

    def show(address: ServerAddress) -> None:
        if loaded.config.gateway.http.enabled:
            _report(f"HTTP: {address.url}v1/messages{', with a token' if address.needs_token else ''}")
        if "pages" in preset.parts:
            _report(f"Pages: {address.url}, opened by 'kept web'")

    run_server(loaded, preset, open_model, ready=show, report=_report)


def _report(line: str) -> None:
    echo(line, err=True)

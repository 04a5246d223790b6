"""kept gateway"""

from __future__ import annotations

import logging

import click

from kept.cli.output import echo, log_to_stderr
from kept.cli.root import Globals


@click.command("gateway")
@click.pass_obj
def command(options: Globals) -> None:
    """Answer messages over HTTP and Telegram, until stopped."""
    from kept.app import open_model
    from kept.channels.gateway import run_gateway

    log_to_stderr()
    logging.getLogger("kept").setLevel(logging.INFO)
    run_gateway(options.load_finished(), open_model, report=_report)


def _report(line: str) -> None:
    echo(line, err=True)

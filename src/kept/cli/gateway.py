"""kept gateway"""

from __future__ import annotations

import logging
import sys

import click

from kept.cli.output import echo
from kept.cli.root import Globals


@click.command("gateway")
@click.pass_obj
def command(options: Globals) -> None:
    """Answer messages over HTTP and Telegram, until stopped."""
    from kept.app import open_model
    from kept.channels.gateway import run_gateway

    _log_to_stderr()
    run_gateway(options.load(), open_model, say=_say)


def _say(line: str) -> None:
    echo(line, err=True)


def _log_to_stderr() -> None:
    """Log what we do, and what goes wrong elsewhere. Standard error is redacted, because libraries log addresses with
    the bot's token in them."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("kept").setLevel(logging.INFO)

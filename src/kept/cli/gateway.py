"""kept gateway"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import click

from kept.cli.output import echo, log_to_stderr
from kept.cli.root import Globals

if TYPE_CHECKING:
    from kept.config import LoadedConfig


@click.command("gateway")
@click.pass_obj
def command(options: Globals) -> None:
    """Answer messages over HTTP, Telegram and Discord, until stopped."""
    from kept.app import open_model
    from kept.channels.gateway import run_gateway

    log_to_stderr()
    logging.getLogger("kept").setLevel(logging.INFO)
    loaded = options.load_finished()
    with _pages(loaded):
        run_gateway(loaded, open_model, report=_report)


def _pages(loaded: LoadedConfig) -> AbstractContextManager[None]:
    """Serve the pages of `kept web` meanwhile, if the settings say so."""
    if not loaded.config.gateway.web.enabled:
        return nullcontext()
    from kept.web.web_server import serving_web

    return serving_web(loaded, ready=lambda address: _report(f"Pages: {address.url}, opened by 'kept web'"))


def _report(line: str) -> None:
    echo(line, err=True)

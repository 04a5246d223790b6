"""kept version"""

from __future__ import annotations

import click

from kept import __version__
from kept.cli.output import echo, json_option, print_json


@click.command("version")
@json_option
def command(as_json: bool) -> None:
    """Print the version."""
    print_json({"version": __version__}) if as_json else echo(f"kept, version {__version__}")

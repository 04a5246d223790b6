"""kept add"""

from __future__ import annotations

import sys

import click

from kept.cli.output import json_option, print_json, style
from kept.cli.root import Globals


@click.command("add")
@click.argument("text", nargs=-1, required=True)
@click.option("--to", default="daily", show_default=True, metavar="daily|memory|PATH", help="Where to write it.")
@json_option
@click.pass_obj
def command(options: Globals, text: tuple[str, ...], to: str, as_json: bool) -> None:
    """Remember TEXT; '-' reads it from standard input."""
    said = sys.stdin.buffer.read().decode("utf-8", "replace") if text == ("-",) else " ".join(text)
    with options.memory() as memory:
        written = memory.add(said, to=to)
    if as_json:
        from kept.tools.shapes import written_json

        print_json(written_json(written))
    else:
        click.echo(f"Kept in {style(written.citation, fg='cyan')}.")

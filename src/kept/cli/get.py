"""kept get"""

from __future__ import annotations

import click

from kept.cli.output import echo, echo_exactly, json_option, print_json, style
from kept.cli.root import Globals
from kept.tools.record_json import passage_json
from kept.tools.tool_text import from_citation


@click.command("get")
@click.argument("path")
@click.option("--from", "start", type=click.IntRange(min=1), metavar="N", help="First line (default: 1).")
@click.option("--lines", type=click.IntRange(min=1), metavar="N", help="Number of lines (default: 200).")
@json_option
@click.pass_obj
def command(options: Globals, path: str, start: int | None, lines: int | None, as_json: bool) -> None:
    """Print a note or a conversation, or some lines of it. PATH may be a citation: memory/ideas.md#L3-L9."""
    path, start, lines = from_citation(path, start, lines)
    with options.memory() as memory:
        passage = memory.read(path, start=start or 1, lines=lines)
    if as_json:
        print_json(passage_json(passage))
        return
    echo_exactly(f"{passage.text}\n")
    if passage.truncated and lines is None:
        echo(style(f"… more: kept get {path} --from {passage.next_from}", dim=True), err=True)

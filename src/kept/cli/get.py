"""kept get"""

from __future__ import annotations

import re
import sys

import click

from kept.cli.output import json_option, print_json, printable, style
from kept.cli.root import Globals

_CITED = re.compile(r"^(?P<path>.+\.(?:md|jsonl))#L(?P<first>\d+)(?:-L?(?P<last>\d+))?$", re.IGNORECASE)


@click.command("get")
@click.argument("path")
@click.option("--from", "start", type=click.IntRange(min=1), help="First line (default: 1).")
@click.option("--lines", type=click.IntRange(min=1), help="How many lines (default: 200).")
@json_option
@click.pass_obj
def command(options: Globals, path: str, start: int | None, lines: int | None, as_json: bool) -> None:
    """Read a note or a conversation, or lines of it. PATH may be a citation: memory/ideas.md#L3-L9."""
    path, start, lines = _from_citation(path, start, lines)
    with options.memory() as memory:
        passage = memory.read(path, start=start or 1, lines=lines)
    if as_json:
        print_json(
            {
                "path": passage.path,
                "from": passage.start,
                "lines": passage.lines,
                "text": passage.text,
                "truncated": passage.truncated,
                "nextFrom": passage.next_from,
            }
        )
        return
    # As it is: by default the library takes out of a pipe what looks like colour.
    click.echo(printable(passage.text) if sys.stdout.isatty() else passage.text, color=True)
    if passage.truncated and lines is None:
        click.echo(style(f"… more: kept get {path} --from {passage.next_from}", dim=True), err=True)


def _from_citation(path: str, start: int | None, lines: int | None) -> tuple[str, int | None, int | None]:
    cited = _CITED.match(path)
    if not cited:
        return path, start, lines
    first = int(cited["first"])
    last = int(cited["last"] or first)
    return cited["path"], start or first, lines or max(1, last - first + 1)

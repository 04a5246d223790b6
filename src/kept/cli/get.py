"""kept get"""

from __future__ import annotations

import click

from kept.cli.output import echo, echo_exactly, json_option, person_option, print_json, style
from kept.cli.root import Globals
from kept.errors import NoteNotFound
from kept.tools.record_json import passage_json
from kept.tools.tool_text import from_citation
from kept.workspace.daily import find_next_part


@click.command("get")
@click.argument("path", nargs=-1, required=True)
@click.option("--from", "start", type=click.IntRange(min=1), metavar="N", help="First line (default: 1).")
@click.option("--lines", type=click.IntRange(min=1), metavar="N", help="Number of lines (default: 200).")
@person_option
@json_option
@click.pass_obj
def command(
    options: Globals, path: tuple[str, ...], start: int | None, lines: int | None, person: str | None, as_json: bool
) -> None:
    """Print a note or a conversation, or some lines of it.

    PATH may be a citation (memory/ideas.md#L3-L9), a day (today, yesterday, 2026-11-12), or the title or file name of a
    note.
    """
    name, start, lines = from_citation(" ".join(path), start, lines)
    with options.memory(person=person) as memory:
        passage = memory.read(name, start=start or 1, lines=lines)
        following = find_next_part(memory.workspace, passage.path)
    if not passage.lines and passage.start > 1:
        raise NoteNotFound(
            f"{passage.path} has no line {passage.start}.",
            hint=f"'kept get {passage.path}' shows it from its beginning.",
        )
    if as_json:
        print_json(passage_json(passage))
        return
    echo_exactly(f"{passage.text}\n")
    if passage.truncated and lines is None:
        echo(style(f"… more: kept get {passage.path} --from {passage.next_from}", dim=True), err=True)
    elif following and lines is None:
        echo(style(f"… more: kept get {following}", dim=True), err=True)

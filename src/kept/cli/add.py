"""kept add"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from kept.agent.tools.record_json import written_json
from kept.base.limits import clip, is_utf8, one_line
from kept.base.records import Written
from kept.cli.options import option, person_option, switch
from kept.cli.output import cyan, dim, printable, read_stdin
from kept.cli.root import Globals, command_author
from kept.errors import NoteTooLarge, UsageError

_SHOWN_CHARS = 100
_RELATIONS = {"changes": "Looks like it changes", "repeats": "Says the same as", "restates": "Says much the same as"}


class AddCommand(click.Command):
    """Command that takes an item of a Markdown list, '- like this', as text."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        items = [arg for arg in args if arg.startswith("- ")]
        if items and "--" not in args:
            args = [*(arg for arg in args if arg not in items), "--", *items]
        return super().parse_args(ctx, args)


@click.command("add", cls=AddCommand)
@click.argument("text", nargs=-1)
@option("--to", "daily|memory|PATH", "Note to append to (default: daily).")
@option(
    "--replaces",
    "CITATION",
    "Line that TEXT takes the place of, such as MEMORY.md#L12: it is struck through and dated.",
)
@switch("--again", "Write TEXT even if the note or MEMORY.md has it already.")
@option(
    "--project",
    "[NAME]",
    "Write to the notes of this project, or without NAME to those of the project of the current folder.",
    is_flag=False,
    flag_value=".",
)
@person_option
@click.pass_obj
def command(options: Globals, /, text: tuple[str, ...], project: str | None, person: str | None, **target: Any) -> None:
    """Write TEXT to a note. Without TEXT, or with '-', read it from standard input.

    With --replaces, TEXT is written above the old line, or to today's log if that is in a daily note.

    \b
    kept add 'The staging database moved to port 5433.'
    git log -1 | kept add --to memory/releases.md
    """
    if project and not text and len(project.split()) > 1:  # --project "We use tabs."
        text, project = (project,), "."
    from_stdin = text == ("-",) or (not text and not sys.stdin.isatty())
    with options.memory(person=person) as memory:
        note = read_stdin(refusal=NoteTooLarge) if from_stdin else " ".join(text)
        if not is_utf8(note):
            raise UsageError("The text is not in UTF-8.", hint="Set the terminal to UTF-8, or convert it with iconv.")
        author = command_author("add")
        written = memory.add(note, project=project, author=author, **target)
        place = memory.place
    options.report(
        lambda: {**written_json(written), "workspaceDir": place},
        _written_lines(written, place),
        degraded=written.degraded if written.is_new else (),
    )


def _written_lines(written: Written, place: str) -> Iterator[str]:
    if written.is_waiting:
        yield f"{place} cannot be reached. The text waits on this machine, and the next command sends it."
        return
    citation = cyan(printable(written.citation))
    if not written.is_new:
        yield f"Not written again: {citation} says the same. --again writes it anyway."
        return
    yield f"Kept in {citation} ({f'folder {place}' if os.path.isabs(place) else place})."
    if written.replaced:
        yield f"Struck through: {cyan(printable(written.replaced))}."
    for fact in written.near:
        cited, text = printable(fact.citation), printable(clip(one_line(fact.text), _SHOWN_CHARS))
        yield f"{_RELATIONS[fact.relation]} {cyan(cited)}: {text}"
        if fact.relation == "changes":
            cited = f"'{cited}'" if " " in cited else cited
            yield dim(f"To replace that line, add --replaces {cited}")

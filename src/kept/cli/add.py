"""kept add"""

from __future__ import annotations

import sys

import click

from kept.cli.command_arguments import TextCommand
from kept.cli.command_author import command_author
from kept.cli.output import echo, json_option, print_json, style, warn
from kept.cli.root import Globals
from kept.cli.streams import read_stdin
from kept.errors import NoteTooLarge, UsageError
from kept.limits import is_utf8


@click.command("add", cls=TextCommand)
@click.argument("text", nargs=-1)
@click.option("--to", default="daily", metavar="daily|memory|PATH", help="Note to append to.")
@click.option(
    "--project",
    metavar="[NAME]",
    is_flag=False,
    flag_value=".",
    help="Write to the notes of this project, or without NAME to those of the project of the current folder.",
)
@json_option
@click.pass_obj
def command(options: Globals, text: tuple[str, ...], to: str, project: str | None, as_json: bool) -> None:
    """Write TEXT to a note. Without TEXT, or with '-', read it from standard input."""
    if project and not text and len(project.split()) > 1:  # --project "We use tabs."
        text, project = (project,), "."
    from_stdin = text == ("-",) or (not text and not sys.stdin.isatty())
    with options.memory() as memory:
        limit = memory.settings.max_file_bytes
        note = read_stdin(limit, refusal=NoteTooLarge) if from_stdin else " ".join(text)
        if not is_utf8(note):
            raise UsageError("The text is not in UTF-8.", hint="Set the terminal to UTF-8, or convert it with iconv.")
        author = command_author(memory.config.agent_id, "add")
        written = memory.add(note, to=to, project=project, author=author)
        folder = memory.workspace.root
    if as_json:
        from kept.tools.record_json import written_json

        print_json({**written_json(written), "workspaceDir": folder})
    else:
        for reason in written.degraded:
            warn(reason)
        echo(f"Kept in {style(written.citation, fg='cyan')} (folder {folder}).")

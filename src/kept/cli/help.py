"""kept help, and the overview of the commands"""

from __future__ import annotations

import click

from kept.cli.output import bold
from kept.cli.root import GLOBAL_OPTIONS, GROUPS, cli

FIRST = ("init", "add", "search", "get", "chat", "connect", "import")
"""What most people need, for the first screen."""


@click.command("help")
@click.argument("names", metavar="[COMMAND]...", nargs=-1)
def command(names: tuple[str, ...]) -> None:
    """Show how to use a command, or list all of them.

    COMMAND is its name, such as 'search' or 'config set'.
    """
    cli.main([*names, "--help"], prog_name="kept", standalone_mode=False)


def write_overview(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the help of `kept` itself: every command in its cli."""
    formatter.write_usage(ctx.command_path, "[OPTIONS] COMMAND ...")
    cli.format_help_text(ctx, formatter)
    width = max(map(len, cli.list_commands(ctx)))
    for title, names in GROUPS.items():
        with formatter.section(bold(title)):
            formatter.write_dl([(f"{name:<{width}}", _summary(ctx, name)) for name in names])
    rows = [(f"{flag} {metavar or ''}".rstrip(), text) for flag, _, metavar, text in GLOBAL_OPTIONS]
    records = (param.get_help_record(ctx) for param in cli.get_params(ctx))
    with formatter.section(bold("Options, before the command or after it")):
        formatter.write_dl([*rows, *filter(None, records)])
    formatter.write_paragraph()
    formatter.write_text("'kept help COMMAND' shows the options of a command, with examples.")


def first_screen(ctx: click.Context) -> str:
    """Return ten lines: what most people need."""
    width = max(map(len, FIRST))
    rows = [f"  {bold(f'kept {name:<{width}}')}  {_summary(ctx, name)}" for name in FIRST]
    return "\n".join([f"{cli.help}\n", *rows, "'kept --help' lists all commands."])


def _summary(ctx: click.Context, name: str) -> str:
    """Return the first sentence of a command's help, whole."""
    inner = cli.get_command(ctx, name)
    paragraph = " ".join((inner.help or "").partition("\n\n")[0].split()) if inner else ""
    sentence, end, _ = paragraph.partition(". ")
    return sentence + end.rstrip()

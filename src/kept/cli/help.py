"""kept help and kept completion, the overview of the commands, and examples"""

from __future__ import annotations

import click

from kept.cli.output import echo, style

GROUPS: dict[str, tuple[str, ...]] = {
    "Notes and search": ("init", "add", "search", "get", "list", "history", "undo", "review", "index", "sync"),
    "Conversations": ("sessions", "import", "forget"),
    "Agents and clients": ("chat", "connect", "mcp", "gateway", "web", "serve", "token", "schedule"),
    "Maintenance": ("status", "doctor", "export", "restore", "config", "models", "bench"),
}
"""Commands by what they are for. Others exist, and are not listed: programs or the documentation call them."""
FIRST = ("init", "add", "search", "get", "chat", "connect", "import")
"""What most people need, for the first screen."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "init": ("kept init ~/notes", "kept init --project"),
    "add": ("kept add 'The staging database moved to port 5433.'", "git log -1 | kept add --to memory/releases.md"),
    "search": ("kept search 'which port is staging on?'", "kept search backups --since '2 weeks ago' -n 3"),
    "get": ("kept get yesterday", "kept get memory/ideas.md#L3-L9", "kept get memory/2026-03-02.md#L12 --why"),
    "list": ("kept list --tag work --since 7d", "kept list --changed -n 10", "kept list --tags"),
    "history": ("kept history --since 2h --diff", "kept history MEMORY.md"),
    "undo": ("kept undo", "kept undo 3f2a91c0", "kept undo --by memory_write --since 2h --dry-run"),
    "review": ("kept review", "kept review accept --session 5054abcd"),
    "index": ("kept index", "kept index --watch", "kept index --install"),
    "sync": ("kept sync --init git@example.org:team/notes.git", "kept sync"),
    "sessions": ("kept sessions list -n 5", "kept sessions show telegram:5054 --tail 20"),
    "import": ("kept import", "kept import claude-code", "kept import chatgpt ~/Downloads/export.zip"),
    "forget": ("kept forget 'the old gate code'", "kept forget --session 3f2a", "kept forget --person Mallory"),
    "chat": ("kept chat", "kept chat -m 'What did we decide about backups?'"),
    "schedule": ("kept schedule add 'every weekday 8:00' 'What is due today?' --to telegram:5054",),
    "web": ("kept web", "kept web --no-open --port 8741"),
    "serve": ("kept serve", "kept serve --host 0.0.0.0 --allow-host memory.example.org --log-format json"),
    "token": ("kept token create ci --scope read --expires 90d", "kept token revoke ci"),
    "mcp": ("kept mcp", "kept mcp --http 127.0.0.1:8738"),
    "connect": ("kept connect claude-code", "kept connect cursor --scope project"),
    "doctor": ("kept doctor --fix",),
    "export": ("kept export backup.tar.gz",),
    "restore": ("kept restore backup.tar.gz --check", "kept restore backup.tar.gz --workspace ~/notes"),
    "config": ("kept config set memory_search.query.max_results 8", "kept config explain query"),
    "models": ("kept models", "kept models pull bge-small-en", "kept models use bge-small-en"),
    "bench": ("kept bench my-set", "kept bench my-set --against memory_search.provider=none"),
}
"""Examples by the name of the command. A test runs the parser over each of them."""


@click.command("help")
@click.argument("names", metavar="[COMMAND]...", nargs=-1)
def command(names: tuple[str, ...]) -> None:
    """Show how to use a command, or list all of them.

    COMMAND is its name, such as 'search' or 'config set'.
    """
    from kept.cli.root import cli

    cli.main([*names, "--help"], prog_name="kept", standalone_mode=False)


def write_overview(group: click.Group, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the help of `kept` itself: every command in its group."""
    formatter.write_usage(ctx.command_path, "[OPTIONS] COMMAND ...")
    group.format_help_text(ctx, formatter)
    width = max(map(len, group.list_commands(ctx)))
    for title, names in GROUPS.items():
        with formatter.section(style(title, bold=True)):
            formatter.write_dl([(f"{name:<{width}}", _summary(group, ctx, name)) for name in names])
    records = (param.get_help_record(ctx) for param in group.get_params(ctx))
    with formatter.section(style("Options, before the command or after it", bold=True)):
        formatter.write_dl([record for record in records if record is not None])
    formatter.write_paragraph()
    formatter.write_text("'kept help COMMAND' shows the options of a command, with examples.")


def first_screen(group: click.Group, ctx: click.Context) -> str:
    """Return ten lines: what most people need."""
    width = max(map(len, FIRST))
    rows = [f"  {style(f'kept {name:<{width}}', bold=True)}  {_summary(group, ctx, name)}" for name in FIRST]
    return "\n".join([f"{group.help}\n", *rows, "'kept --help' lists all commands."])


def write_epilog(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write what comes below the help of a command: its examples, and what holds for all commands."""
    _write_examples(formatter, EXAMPLES.get(ctx.command_path.removeprefix("kept "), ()))
    formatter.write_paragraph()
    has_text = any(isinstance(param, click.Argument) for param in ctx.command.params)
    note = "Put '--' before an argument that begins with '-' and is not an option. " if has_text else ""
    formatter.write_text(f"{note}'kept --help' lists the options that all commands have, such as --json.")


def _summary(group: click.Group, ctx: click.Context, name: str) -> str:
    """Return the first sentence of a command's help, whole."""
    inner = group.get_command(ctx, name)
    paragraph = " ".join((inner.help or "").partition("\n\n")[0].split()) if inner else ""
    sentence, end, _ = paragraph.partition(". ")
    return sentence + end.rstrip()


def _write_examples(formatter: click.HelpFormatter, examples: list[str] | tuple[str, ...]) -> None:
    if examples:
        with formatter.section(style("Examples", bold=True)):
            for example in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print the completion script for SHELL: commands and options.

    For bash, add this to ~/.bashrc: eval "$(kept completion bash)". For zsh, the same with zsh to ~/.zshrc. For fish:
    kept completion fish > ~/.config/fish/completions/kept.fish
    """
    from click.shell_completion import get_completion_class

    from kept.cli.root import cli

    kind = get_completion_class(shell)
    assert kind is not None
    echo(kind(cli, {}, "kept", "_KEPT_COMPLETE").source())

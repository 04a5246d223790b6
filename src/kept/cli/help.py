"""kept help, the help of every command, and hints for commands that do not exist"""

from __future__ import annotations

from collections.abc import Collection

import click

from kept.cli.output import echo, style
from kept.errors import UsageError

_SIMILAR = 0.7

_FOLDED = {
    "agents": "kept config agents",
    "links": "kept get NOTE --links, or kept list --broken-links",
    "projects": "kept list --projects, or kept init --project",
    "providers": "kept models",
    "recent": "kept list --changed",
    "service": "kept gateway --install",
    "tags": "kept list --tags",
    "verify": "kept restore --check",
    "version": "kept --version",
    "watch": "kept index --watch",
    "why": "kept get NOTE --why",
}
"""What does the work of a command that there was."""


def suggestion_for(name: str, known: Collection[str]) -> str:
    """Return a sentence with the command that the user may have meant."""
    import difflib

    if name in _FOLDED:
        return f"Use {_FOLDED[name]}."
    if near := difflib.get_close_matches(name.lower(), known, n=1, cutoff=_SIMILAR):
        return f"Did you mean '{near[0]}'?"
    return "'kept --help' lists them all."


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
    "get": (
        "kept get yesterday",
        "kept get memory/ideas.md#L3-L9",
        "kept get MEMORY.md --links",
        "kept get memory/2026-03-02.md#L12 --why",
    ),
    "list": ("kept list --tag work --since 7d", "kept list --changed -n 10", "kept list --tags"),
    "history": ("kept history --since 2h --diff", "kept history MEMORY.md"),
    "undo": ("kept undo", "kept undo 3f2a91c0", "kept undo --by memory_write --since 2h --dry-run"),
    "review": ("kept review",),
    "review list": ("kept review list --diff",),
    "review accept": ("kept review accept 3f2a91c0", "kept review accept --session 5054abcd"),
    "review reject": ("kept review reject 3f2a91c0",),
    "index": ("kept index --dry-run", "kept index --watch", "kept index --install"),
    "sync": ("kept sync --init git@example.org:team/notes.git", "kept sync"),
    "sessions": ("kept sessions list -n 5",),
    "sessions list": ("kept sessions list --channel telegram -n 5", "kept sessions list --deleted"),
    "sessions show": ("kept sessions show telegram:5054 --tail 20",),
    "sessions rename": ("kept sessions rename 3f2a 'The spare key'",),
    "sessions restore": ("kept sessions restore 3f2a",),
    "sessions reset": ("kept sessions reset telegram:5054",),
    "sessions compact": ("kept sessions compact telegram:5054 --summary 'We chose Postgres.'",),
    "sessions delete": ("kept sessions delete 3f2a",),
    "sessions export": ("kept sessions export 3f2a --format md > talk.md",),
    "import": ("kept import", "kept import claude-code --dry-run", "kept import chatgpt ~/Downloads/export.zip"),
    "import openclaw": ("kept import openclaw ~/.openclaw",),
    "import claude-code": ("kept import claude-code", "kept import claude-code ~/.claude/projects --dry-run"),
    "import codex": ("kept import codex", "kept import codex rollout.jsonl"),
    "import pi": ("kept import pi",),
    "import chatgpt": ("kept import chatgpt ~/Downloads/export.zip",),
    "import claude-ai": ("kept import claude-ai ~/Downloads/data-2026-03-05-batch-0000.zip",),
    "forget": ("kept forget 'the old gate code'", "kept forget --session 3f2a", "kept forget --person Mallory"),
    "chat": ("kept chat", "kept chat -m 'What did we decide about backups?'"),
    "gateway": ("kept gateway",),
    "schedule": ("kept schedule list",),
    "schedule add": (
        "kept schedule add 'every weekday 8:00' 'What is due today?' --to telegram:5054",
        "kept schedule add 'tomorrow 9:30' 'Remind me to call Ada.' --to telegram:5054",
    ),
    "schedule list": ("kept schedule list --json",),
    "schedule remove": ("kept schedule remove 3f2a91",),
    "schedule pause": ("kept schedule pause 3f2a91",),
    "schedule resume": ("kept schedule resume 3f2a91",),
    "schedule run": ("kept schedule run 3f2a91",),
    "web": ("kept web", "kept web --no-open --port 8741"),
    "serve": ("kept serve", "kept serve --host 0.0.0.0 --allow-host memory.example.org --log-format json"),
    "token": ("kept token list",),
    "token create": ("kept token create ci --scope read --expires 90d",),
    "token list": ("kept token list --json",),
    "token revoke": ("kept token revoke ci",),
    "mcp": ("kept mcp", "kept mcp --http 127.0.0.1:8738"),
    "connect": ("kept connect claude-code", "kept connect cursor --scope project --project"),
    "hook": ("kept hook session-start < event.json",),
    "hook session-start": ("kept hook session-start < event.json",),
    "hook capture": ("kept hook capture < event.json",),
    "status": ("kept status",),
    "doctor": ("kept doctor --fix",),
    "export": (
        "kept export backup.tar.gz",
        "kept --agent work export work.tar",
    ),
    "restore": ("kept restore backup.tar.gz --check", "kept restore backup.tar.gz --workspace ~/notes"),
    "config": ("kept config set memory_search.query.max_results 8",),
    "config show": ("kept config show > config.yaml",),
    "config explain": ("kept config explain query",),
    "config get": ("kept config get memory_search.query.max_results",),
    "config set": (
        "kept config set memory_search.query.max_results 8",
        "kept config set memory_search.extra_paths ~/journal ~/work",
        "kept --agent research config set workspace ~/research",
    ),
    "config unset": ("kept config unset memory_search.query.max_results",),
    "config edit": ("EDITOR=nano kept config edit",),
    "config path": ("kept config path",),
    "config agents": ("kept config agents list",),
    "config agents list": ("kept config agents list",),
    "config agents add": (
        "kept config agents add research --workspace ~/research",
        "kept config agents add coder --share-notes-with main",
    ),
    "config agents remove": ("kept config agents remove research",),
    "models test": ("kept models test openai",),
    "models": ("kept models",),
    "models pull": ("kept models pull bge-small-en",),
    "models use": ("kept models use bge-small-en", "kept models use default"),
    "models remove": ("kept models remove bge-small-en",),
    "bench": ("kept bench --init my-set", "kept bench my-set"),
    "demo": ("kept demo",),
    "completion": ('eval "$(kept completion bash)"', "kept completion fish > ~/.config/fish/completions/kept.fish"),
    "help": ("kept help search",),
}  # fmt: skip
"""Examples by the name of the command. A test runs the parser over each of them."""

_GROUP_EXAMPLES = ("search", "sessions", "connect", "config")
_TEXT_NOTE = "Put '--' before an argument that begins with '-' and is not an option."


@click.command("help")
@click.argument("names", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def command(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Show how to use a command, or list all of them.

    COMMAND is its name, such as 'search' or 'config set'.
    """
    at = ctx.parent
    assert at is not None
    for name in names:
        inner = at.command.get_command(at, name) if isinstance(at.command, click.Group) else None
        if inner is None:
            known = at.command.list_commands(at) if isinstance(at.command, click.Group) else []
            path = f"{at.command_path} {name}"
            raise UsageError(f"There is no command '{path}'.", hint=suggestion_for(name, known))
        at = click.Context(inner, info_name=name, parent=at)
    echo(at.get_help())


def write_overview(group: click.Group, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the help of `kept` itself: every command in its group."""
    formatter.write_usage(ctx.command_path, "[OPTIONS] COMMAND ...")
    group.format_help_text(ctx, formatter)
    width = max(map(len, group.list_commands(ctx)))
    for title, names in GROUPS.items():
        _write_section(formatter, title, [(f"{name:<{width}}", _summary(group, ctx, name)) for name in names])
    _write_section(formatter, "Options, before the command or after it", _option_rows(group, ctx))
    _write_lines(formatter, "Examples", [example for name in _GROUP_EXAMPLES for example in EXAMPLES[name][:1]])
    formatter.write_paragraph()
    formatter.write_text("'kept help COMMAND' shows the options of a command, with examples.")


def first_screen(group: click.Group, ctx: click.Context) -> str:
    """Return ten lines: what most people need."""
    width = max(map(len, FIRST))
    rows = [f"  {style(f'kept {name:<{width}}', bold=True)}  {_summary(group, ctx, name)}" for name in FIRST]
    return "\n".join([f"{group.help}\n", *rows, "'kept --help' lists all commands."])


def write_help(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the help of a command, with examples."""
    command.format_usage(ctx, formatter)
    command.format_help_text(ctx, formatter)
    if isinstance(command, click.Group):
        rows = [(name, _summary(command, ctx, name)) for name in command.commands]
        _write_section(formatter, "Commands", rows)
    _write_section(formatter, "Options", _option_rows(command, ctx))
    name = ctx.command_path.removeprefix("kept").strip()
    _write_lines(formatter, "Examples" if len(EXAMPLES.get(name, ())) > 1 else "Example", EXAMPLES.get(name, ()))
    formatter.write_paragraph()
    notes = [_TEXT_NOTE] if any(isinstance(param, click.Argument) for param in command.params) else []
    formatter.write_text(" ".join([*notes, "'kept --help' lists the options that all commands have."]))


def _summary(group: click.Group, ctx: click.Context, name: str) -> str:
    """Return the first sentence of a command's help, whole."""
    inner = group.get_command(ctx, name)
    paragraph = " ".join((inner.help or "").partition("\n\n")[0].split()) if inner else ""
    sentence, end, _ = paragraph.partition(". ")
    return sentence + end.rstrip()


def _option_rows(command: click.Command, ctx: click.Context) -> list[tuple[str, str]]:
    options = (param for param in command.get_params(ctx) if isinstance(param, click.Option))
    records = (option.get_help_record(ctx) for option in options)
    return [record for record in records if record is not None]


def _write_section(formatter: click.HelpFormatter, title: str, rows: list[tuple[str, str]]) -> None:
    if rows:
        with formatter.section(style(title, bold=True)):
            formatter.write_dl(rows)


def _write_lines(formatter: click.HelpFormatter, title: str, lines: list[str] | tuple[str, ...]) -> None:
    if lines:
        with formatter.section(style(title, bold=True)):
            for line in lines:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")

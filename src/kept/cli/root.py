"""The command `kept` and its global options."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kept import __version__
from kept.base.values import frozen
from kept.cli.command_arguments import GLOBAL_OPTIONS, accept_global_options, setting_pairs
from kept.cli.output import echo, print_json, warn_of_settings
from kept.cli.streams import remember_secrets

if TYPE_CHECKING:
    from kept.config import Config, LoadedConfig
    from kept.memory import Memory
    from kept.notes.change_recorder import Author
    from kept.notes.history.note_history import HistoryRecorder
    from kept.sessions.store import SessionStore

COMPLETE_VARIABLE = "_KEPT_COMPLETE"
"""Set while a shell completes a command."""
COMMANDS = {
    "init": "init",
    "add": "add",
    "search": "search",
    "get": "get",
    "list": "list",
    "history": "history",
    "undo": "history:undo_command",
    "review": "review",
    "index": "index",
    "sync": "sync_command",
    "sessions": "sessions",
    "import": "imports",
    "forget": "forget",
    "chat": "chat",
    "connect": "connect_command",
    "mcp": "servers:mcp_command",
    "gateway": "servers:gateway_command",
    "web": "servers:web_command",
    "serve": "servers:serve_command",
    "token": "token_command",
    "schedule": "schedule_command",
    "status": "status",
    "doctor": "status:doctor_command",
    "export": "archives:export_command",
    "restore": "archives:restore_command",
    "config": "config",
    "models": "models",
    "bench": "bench_command",
    "hook": "hook_command",
    "demo": "demo",
    "completion": "completion",
    "help": "help",
}
"""Module of each command, and the name there if it is not `command`. Those of no group in `help` are not listed."""


@frozen
class Globals:
    """Global options, given before the name of the command or after it."""

    home: str | None
    workspace: str | None
    agent: str | None
    config_file: str | None
    settings: dict[str, Any]
    debug: bool = False
    as_json: bool = False

    def report(self, shape: Any, text: str) -> None:
        """Print the result of a command, for scripts or for people."""
        print_json(shape) if self.as_json else echo(text)

    def load(
        self,
        *,
        workspace: str | None = None,
        settings: dict[str, Any] | None = None,
        new_agent: bool = False,
        quietly: bool = False,
    ) -> LoadedConfig:
        """Load the settings. ``workspace`` and ``settings`` come from options of the command, and override the global
        ones. ``new_agent`` allows an agent that the command is about to make. ``quietly`` says nothing about values."""
        from kept.config import load_config

        loaded = load_config(
            home=self.home,
            workspace=workspace or self.workspace,
            agent=self.agent,
            config_file=self.config_file,
            settings=self.settings | (settings or {}),
            new_agent=new_agent,
        )
        remember_secrets(loaded.config)
        warn_of_settings(() if quietly else loaded.config.notices)
        return loaded

    def memory(self, *, person: str | None = None) -> Memory:
        """Open the memory, as a person sees it if one is named."""
        from kept.gateway.app import open_memory

        memory = open_memory(self.load_finished())
        return memory if person is None else memory.as_person(person)

    def load_finished(self) -> LoadedConfig:
        """Load the settings, and finish a forget that was interrupted."""
        loaded = self.load()
        if os.path.exists(loaded.config.paths.forgetting):
            from kept.cli.forget import finish_interrupted

            finish_interrupted(loaded)
        return loaded

    def sessions(self) -> SessionStore:
        from kept.gateway.app import open_sessions

        return open_sessions(self.load_finished())


def command_author(agent_id: str, command: str) -> Author:
    """Return the author that the history records for a command: the tool is the command, who is logged in ran it."""
    from kept.notes.change_recorder import Author

    person = os.environ.get("USER") or os.environ.get("LOGNAME")
    return Author(agent_id, tool=f"kept {command}", person=person)


def command_recorder(config: Config, command: str, *, why: str = "") -> HistoryRecorder | None:
    """Return the recorder for changes that a command makes without a memory, or None if the history is off."""
    from kept.base.clock import SystemClock
    from kept.notes.history.note_history import open_recorder
    from kept.notes.workspace import Workspace

    author = command_author(config.agent_id, command)
    return open_recorder(config, Workspace.of(config), SystemClock(), author, why=why)


class OutputClosed(Exception):
    """The reader of our output is gone, as `head` is after its lines. Click would turn a BrokenPipeError into a
    failure."""


@contextmanager
def _translating_broken_pipe() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as exc:
        raise OutputClosed from exc


class LazyGroup(click.Group):
    """Group that imports a command when it is used: a search does not import the doctor."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        if COMPLETE_VARIABLE in os.environ:
            from kept.cli.completion import attach

            attach(click.Command(None, params=self.params))  # the global options
        with _translating_broken_pipe():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _translating_broken_pipe():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(f"kept.cli.{module}"), attribute or "command")
        if command not in _PREPARED:
            _PREPARED.append(command)
            accept_global_options(command)
            _show_examples(command)
            if COMPLETE_VARIABLE in os.environ:
                from kept.cli.completion import attach

                attach(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0].lower(), COMMANDS, n=1, cutoff=0.7)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"There is no command '{args[0]}'.{hint}", ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from kept.cli.help import write_overview

        write_overview(self, ctx, formatter)


_PREPARED: list[click.Command] = []
"""Commands that are imported, and have the global options."""


def _show_examples(command: click.Command) -> None:
    """Let the help of a command end with examples, which are imported for that only."""

    def write(ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from kept.cli.help import write_epilog

        write_epilog(ctx, formatter)

    setattr(command, "format_epilog", write)  # noqa: B010  (the commands of other modules are plain ones)
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        _show_examples(inner)


def show_help_without_command(ctx: click.Context) -> None:
    """Print the first screen if no command is given. Exit with 2: in a script, this is a mistake."""
    if ctx.invoked_subcommand is None:
        from kept.cli.help import first_screen

        assert isinstance(ctx.command, click.Group)
        echo(first_screen(ctx.command, ctx), err=True)
        ctx.exit(2)


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    params=[option.as_option(after_command=False) for option in GLOBAL_OPTIONS],
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.version_option(__version__, prog_name="kept", help="Show the version.")
@click.pass_context
def cli(
    ctx: click.Context,
    workspace: str | None,
    home: str | None,
    agent: str | None,
    config_file: str | None,
    settings: tuple[str, ...],
    debug: bool,
    as_json: bool,
) -> None:
    """Memory for AI agents: plain Markdown notes, recalled by meaning and by word."""
    show_help_without_command(ctx)
    ctx.obj = Globals(home, workspace, agent, config_file, setting_pairs(settings), debug, as_json)

"""The command `kept`: its global options, its commands, and every error as one line and an exit code."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from kept import __version__
from kept.base.limits import one_line
from kept.base.values import frozen
from kept.cli.output import (
    echo,
    guard_streams,
    hide_secrets,
    json_text,
    print_json,
    remember_secrets,
    style,
    warn_of_settings,
)
from kept.errors import KeptError, UsageError

if TYPE_CHECKING:
    from kept.config import Config, LoadedConfig
    from kept.memory import Memory
    from kept.notes.history.note_change import Author
    from kept.notes.note_commit import HistoryRecorder
    from kept.sessions.store import SessionStore

T = TypeVar("T")
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
    "sync": "sync",
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
    "completion": "help:completion_command",
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

    def show(self, result: T, print_text: Callable[[T], None], shape: Callable[[T], Any] | None = None) -> None:
        """Print the result of a command: for scripts in its shape, or for people with ``print_text``."""
        if not self.as_json:
            print_text(result)
            return
        from kept.agent.tools.record_json import to_json

        print_json((shape or to_json)(result))

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
    from kept.notes.history.note_change import Author

    person = os.environ.get("USER") or os.environ.get("LOGNAME")
    return Author(agent_id, tool=f"kept {command}", person=person)


def command_recorder(config: Config, command: str, *, why: str = "") -> HistoryRecorder | None:
    """Return the recorder for changes that a command makes without a memory, or None if the history is off."""
    from kept.base.clock import SystemClock
    from kept.notes.note_commit import open_recorder
    from kept.notes.workspace import Workspace

    author = command_author(config.agent_id, command)
    return open_recorder(config, Workspace.of(config), SystemClock(), author, why=why)


# options that all commands take, before the command or after it


@frozen
class GlobalOption:
    """An option of `kept` itself, accepted before the command and after it."""

    flag: str
    field: str
    help: str
    metavar: str | None = None
    multiple: bool = False

    def as_option(self, *, after_command: bool) -> click.Option:
        """Return the option for `kept`, or the hidden one for a command, which `kept --help` documents."""
        settings: dict[str, Any] = {"help": self.help, "multiple": self.multiple, "metavar": self.metavar}
        if self.metavar is None:
            settings["is_flag"] = True
        if not after_command:
            return click.Option([self.flag, self.field], **settings)
        # A name of its own: a command may have an argument called like the field, as `kept init WORKSPACE`.
        names = [self.flag, f"global_{self.field}"]
        return click.Option(names, hidden=True, expose_value=False, callback=self._apply, **settings)

    def _apply(self, ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value and ctx.obj is not None:
            chosen = ctx.obj.settings | setting_pairs(value) if self.multiple else value
            ctx.obj = replace(ctx.obj, **{self.field: chosen})
        if self.field == "as_json" and ctx.obj is not None and ctx.obj.as_json:
            _refuse_json(ctx.command_path)


GLOBAL_OPTIONS = (
    GlobalOption("--workspace", "workspace", "Folder of the notes (default: ~/.kept/workspace).", "DIR"),
    GlobalOption("--home", "home", "Folder of the index and the settings (default: ~/.kept).", "DIR"),
    GlobalOption("--agent", "agent", "Agent whose memory to use (default: main).", "NAME"),
    GlobalOption("--config", "config_file", "Settings file to use instead of HOME/config.yaml.", "FILE"),
    GlobalOption("--set", "settings", "Override one setting for this run.", "KEY=VALUE", multiple=True),
    GlobalOption("--debug", "debug", "Show a traceback on errors."),
    GlobalOption("--json", "as_json", "Print JSON for scripts."),
)


def accept_global_options(command: click.Command) -> None:
    """Let a command, and the commands of a group, take the global options too, except where it has one of that name."""
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        accept_global_options(inner)
    taken = {flag for param in command.params for flag in param.opts}
    command.params += [option.as_option(after_command=True) for option in GLOBAL_OPTIONS if option.flag not in taken]


WITHOUT_JSON = ("gateway", "web", "serve", "mcp", "hook", "demo", "completion", "help")


def _refuse_json(path: str) -> None:
    if path.split()[1] in WITHOUT_JSON:
        raise UsageError(f"'{path}' has no JSON output.", hint="Leave out --json.")


def setting_pairs(settings: Iterable[str]) -> dict[str, Any]:
    return dict(_pair(setting) for setting in settings)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set {text}: expected KEY=VALUE.", hint="For example: --set memory_search.provider=none")
    return key.strip(), value


# the commands


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


# running a command

INTERRUPTED = 130
UNEXPECTED = 70
_WRITE_FAILED = 8
_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


def run() -> NoReturn:
    _prepare_streams()
    # Looked up in the arguments rather than in click's context: an unknown or incomplete option is refused by the
    # parser, before any option has a value, and that error must be JSON as well. Arguments after "--" are text.
    options = list(takewhile(lambda argument: argument != "--", sys.argv[1:]))
    as_json, debug = "--json" in options, "--debug" in options
    try:
        code = cli.main(prog_name="kept", standalone_mode=False)
        sys.stdout.flush()
    except KeptError as exc:
        _show_traceback(debug=debug)
        fail(exc.code, exc.message, exc.hint, exc.exit_code, as_json=as_json)
    except click.exceptions.NoArgsIsHelpError as exc:
        echo(exc.message, err=True)
        sys.exit(2)
    except click.UsageError as exc:
        fail("usage", _as_sentence(exc.format_message()), _usage_hint(exc), 2, as_json=as_json)
    except (KeyboardInterrupt, click.Abort):
        fail("interrupted", "Interrupted.", "Nothing is lost; run the command again.", INTERRUPTED, as_json=as_json)
    except (BrokenPipeError, OutputClosed):
        _discard_output()
        sys.exit(0)
    except Exception as exc:  # noqa: BLE001  (the last resort: one line and an exit code instead of a traceback)
        _show_traceback(debug=debug)
        _fail_unexpectedly(exc, as_json=as_json)
    sys.exit(code if isinstance(code, int) else 0)


def _fail_unexpectedly(exc: Exception, *, as_json: bool) -> NoReturn:
    if isinstance(exc, OSError) and exc.errno in _OUTPUT_ERRORS:
        # Errors of files are KeptErrors by now: this one is of standard output.
        _discard_output()
        message = f"The output could not be written ({exc.strerror})."
        fail("write_failed", message, "Check the disk that it is redirected to.", _WRITE_FAILED, as_json=False)
    message = f"Unexpected error: {type(exc).__name__}: {exc}".rstrip(".: ") + "."
    hint = "Run the command again with --debug and report what it prints."
    fail("internal", message, hint, UNEXPECTED, as_json=as_json)


def _as_sentence(message: str) -> str:
    """Return a message of the parser with a full stop: a list of choices has none."""
    text = message.rstrip()
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _usage_hint(error: click.UsageError) -> str:
    context = error.ctx
    if context is None:
        return "See 'kept --help'."
    hint = f"See '{context.command_path} --help'."
    takes_text = any(isinstance(param, click.Argument) for param in context.command.params)
    if isinstance(error, click.NoSuchOption) and takes_text:
        hint += f" If '{error.option_name}' is not an option, put '--' before it."
    return hint


def _show_traceback(*, debug: bool) -> None:
    """Print the traceback, with --debug, in one write: a secret that is written in parts would not be redacted."""
    if debug:
        import traceback

        echo(traceback.format_exc(), err=True, nl=False)


def _prepare_streams() -> None:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It was closed before the start. The next file to be opened would get its descriptor.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # escape what the encoding cannot show
    guard_streams()


def _discard_output() -> None:
    """Redirect standard output to nothing after a write failed. Else Python tries again at exit, and reports that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(code: str, message: str, hint: str, status: int, *, as_json: bool) -> NoReturn:
    if as_json:
        try:
            shown = {"code": code, "message": hide_secrets(message), "hint": hide_secrets(hint)}
            echo(json_text({"error": shown}))
        except BrokenPipeError:
            _discard_output()
        except OSError:  # the output cannot be written: then people are told
            _discard_output()
            as_json = False
    if not as_json:
        echo(style("Error: ", err=True, fg="red", bold=True) + one_line(f"{message} {hint}"), err=True)
    sys.exit(status)

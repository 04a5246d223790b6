"""The command `kept`: its global options, its commands, and every error as one line and an exit code."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click

from kept import __version__
from kept.base.limits import one_line
from kept.base.values import frozen
from kept.cli.output import SETTINGS_IN_USE, echo, guard_streams, hide_secrets, json_text, print_json, style, warn_all
from kept.errors import KeptError, UsageError

if TYPE_CHECKING:
    from kept.config import Config, LoadedConfig
    from kept.memory import Memory
    from kept.notes.history.note_history import Author, HistoryRecorder
    from kept.sessions.store import SessionStore
    from kept.storage.contract import Storage

GROUPS = {
    "Notes and search": {
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
    },
    "Conversations": {"sessions": "sessions", "import": "imports", "forget": "forget"},
    "Agents and clients": {
        "chat": "chat",
        "connect": "connect_command",
        "login": "login",
        "logout": "login:logout_command",
        "mcp": "servers:mcp_command",
        "gateway": "servers:gateway_command",
        "web": "servers:web_command",
        "serve": "servers:serve_command",
        "token": "token_command",
        "schedule": "schedule_command",
    },
    "Maintenance": {
        "status": "status",
        "doctor": "status:doctor_command",
        "export": "archives:export_command",
        "restore": "archives:restore_command",
        "config": "config",
        "models": "models",
        "bench": "bench_command",
    },
}
"""Commands by what they are for, each with its module, and the name there if it is not `command`."""
COMMANDS = {name: place for group in GROUPS.values() for name, place in group.items()}
COMMANDS |= {"hook": "hook_command", "help": "help"}  # not listed: programs or the documentation call them


@frozen
class Globals:
    """Global options, given before the name of the command or after it."""

    home: str | None = None
    workspace: str | None = None
    agent: str | None = None
    config_file: str | None = None
    database: str | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    """Keys with values, of which the last counts."""
    debug: bool = False
    as_json: bool = False

    def report(self, shape: Any, text: str | Iterable[str], *, degraded: Iterable[str] = ()) -> None:
        """Print the result of a command, for scripts or for people. Lines for people are made only for them, and come
        after the reasons why the result may be incomplete. ``shape`` may be a function that makes it for scripts."""
        if self.as_json:
            print_json(shape() if callable(shape) else shape)
            return
        if degraded:
            warn_all(degraded)
        for line in [text] if isinstance(text, str) else text:
            echo(line)

    def hint(self, text: str) -> None:
        """Tell people what to do next, apart from the result."""
        if not self.as_json:
            echo(style(text, err=True, dim=True), err=True)

    def load(
        self,
        *,
        workspace: str | None = None,
        settings: dict[str, Any] | None = None,
        new_agent: bool = False,
        quietly: bool = False,
    ) -> LoadedConfig:
        """Load the settings, warn of what is wrong with them, and finish a forget that was interrupted.

        ``workspace`` and ``settings`` come from options of the command, and override the global ones. ``new_agent``
        allows an agent that the command is about to make. ``quietly`` only loads.
        """
        from kept.config import load_config
        from kept.config.agent_config import FORGETTING

        if self.login():
            _require_on_server(allowed=())
        loaded = load_config(
            home=self.home,
            workspace=workspace or self.workspace,
            agent=self.agent,
            config_file=self.config_file,
            database=self.database,
            settings=dict(self.settings) | (settings or {}),
            new_agent=new_agent,
        )
        SETTINGS_IN_USE.append(loaded.config)
        if not quietly:
            if loaded.config.notices:
                warn_all(loaded.config.notices, once=True)
            if os.path.exists(os.path.join(loaded.config.paths.folder, FORGETTING)):
                from kept.cli.forget import finish_interrupted

                finish_interrupted(loaded)
        return loaded

    def login(self) -> Storage | None:
        """Return the home if it names a server that has the memory, unless this run names another memory."""
        from kept.config.layers import LOGIN, find_home
        from kept.storage.open import open_folder

        is_here = self.workspace or self.agent or self.database or os.environ.get("KEPT_DATABASE")
        home = find_home(self.home)
        return None if is_here or not os.path.exists(os.path.join(home, LOGIN)) else open_folder(home)

    def memory(self, *, person: str | None = None) -> Memory:
        """Open the memory, as a person sees it if one is named: here, or on the server that has it."""
        if home := self.login():
            _require_on_server()
            from kept.client.remote_memory import RemoteMemory

            if person is not None:
                raise UsageError("The token says whose memory it is.", hint="Leave out --person.")
            remote = RemoteMemory.open(home)
            warn_all(f"The server refused what was written before: {write.reason}" for write in remote.refused)
            return cast("Memory", remote)  # a test compares their methods
        from kept.memory import Memory

        memory = Memory.of(self.load())
        return memory if person is None else memory.as_person(person)

    def sessions(self) -> SessionStore:
        if home := self.login():
            _require_on_server()
            from kept.client.remote_sessions import RemoteSessions

            return cast("SessionStore", RemoteSessions.open(home))
        from kept.gateway.app import open_sessions

        return open_sessions(self.load())


_ON_SERVER = (
    "search",
    "add",
    "get",
    "list",
    "history",
    "undo",
    "review",
    "forget",
    "sessions",
    "status",
    "import",
    "hook",
)
"""Commands that work on the memory of a server that this machine is logged in to."""


def _require_on_server(allowed: Sequence[str] = _ON_SERVER) -> None:
    command = click.get_current_context().command_path
    if command.split()[1] not in allowed:
        hint = "Run it on the server, name another memory with --workspace, or log out: kept logout"
        shown = f"'{command}'" + (" with these options" if command.split()[1] in _ON_SERVER else "")
        raise UsageError(f"{shown} does not work on the server that you are logged in to.", hint=hint)


def command_author(command: str) -> Author:
    """Return the author that the history records for a command: the tool is the command, who is logged in ran it."""
    from kept.notes.history.note_history import Author

    person = os.environ.get("USER") or os.environ.get("LOGNAME")
    return Author(tool=f"kept {command}", person=person)


def command_recorder(config: Config, command: str, *, why: str = "") -> HistoryRecorder | None:
    """Return the recorder for changes that a command makes without a memory, or None if the history is off."""
    from kept.base.clock import SystemClock
    from kept.notes.history.note_history import open_recorder
    from kept.notes.workspace import Workspace

    author = command_author(command)
    return open_recorder(config, Workspace.of(config), SystemClock(), author, why=why)


# options that all commands take, before the command or after it


GLOBAL_OPTIONS = (
    ("--workspace", "workspace", "DIR", "Folder of the notes (default: ~/.kept/workspace)."),
    ("--home", "home", "DIR", "Folder of the index and the settings (default: ~/.kept)."),
    ("--agent", "agent", "NAME", "Agent whose memory to use (default: main)."),
    ("--config", "config_file", "FILE", "Settings file to use instead of HOME/config.yaml."),
    ("--database", "database", "URL", "PostgreSQL database that has the memory (default: KEPT_DATABASE)."),
    ("--set", "settings", "KEY=VALUE", "Override one setting for this run."),
    ("--debug", "debug", None, "Show a traceback on errors."),
    ("--json", "as_json", None, "Print JSON for scripts."),
)
_PREFIX = "global_"
"""Begins the names of these options: a command may have an argument called like a field, as `kept init WORKSPACE`."""
_FOR_ALL = "'kept --help' lists the options that all commands have, such as --json."
WITHOUT_JSON = ("gateway", "web", "serve", "mcp", "hook", "help", "login", "logout")


def _set_global(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    options, field = ctx.ensure_object(Globals), str(option.name).removeprefix(_PREFIX)
    if value:
        chosen: Any = (*options.settings, *map(_setting_pair, value)) if field == "settings" else value
        ctx.obj = options = replace(options, **{field: chosen})
    if field == "as_json" and options.as_json and ctx.command_path.split()[1:2] in ([name] for name in WITHOUT_JSON):
        raise UsageError(f"'{ctx.command_path}' has no JSON output.", hint="Leave out --json.")


def _setting_pair(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        hint = "For example: --set memory_search.provider=none"
        raise UsageError(f"--set {text}: expected KEY=VALUE.", hint=hint)
    return key.strip(), value


_PARAMETERS: list[click.Parameter] = [
    click.Option(
        [flag, f"{_PREFIX}{field}"],
        metavar=metavar,
        is_flag=metavar is None,
        multiple=field == "settings",
        help=text,
        hidden=True,  # only `kept --help` shows them
        expose_value=False,
        callback=_set_global,
    )
    for flag, field, metavar, text in GLOBAL_OPTIONS
]

# the commands


class LazyGroup(click.Group):
    """Group that imports a command when it is used: a search does not import the doctor."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            if cmd_name.startswith("-"):
                return None  # click says which options there are
            import difflib

            near = difflib.get_close_matches(cmd_name.lower(), COMMANDS, n=1, cutoff=0.7)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"There is no command '{cmd_name}'.{hint}", ctx=ctx)
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(f"kept.cli.{module}"), attribute or "command")
        if command.epilog:
            return command
        # The commands of a group take the global options too.
        for each in (command, *(command.commands.values() if isinstance(command, click.Group) else ())):
            has_text = any(isinstance(param, click.Argument) for param in each.params)
            note = "Put '--' before an argument that begins with '-' and is not an option. " if has_text else ""
            each.epilog = f"{note}{_FOR_ALL}"
            each.params += _PARAMETERS
        return command

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from kept.cli.help import write_overview

        write_overview(ctx, formatter)


cli = LazyGroup(
    "kept",
    help="Memory for AI agents: plain Markdown notes, recalled by meaning and by word.",
    params=[*_PARAMETERS],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
click.version_option(__version__, prog_name="kept", help="Show the version.")(cli)


# running a command

INTERRUPTED = 130
UNEXPECTED = 70
_WRITE_FAILED = 8
_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


def run() -> NoReturn:
    guard_streams()
    # Looked up in the arguments rather than in click's context: an unknown or incomplete option is refused by the
    # parser, before any option has a value, and that error must be JSON as well. Arguments after "--" are text.
    options = list(takewhile(lambda argument: argument != "--", sys.argv[1:]))
    as_json, debug = "--json" in options, "--debug" in options
    try:
        # Not `cli.main`, which turns a reader of our output that is gone, as `head` is after its lines, into a failure.
        with cli.make_context("kept", sys.argv[1:]) as ctx:
            cli.invoke(ctx)
        sys.stdout.flush()
    except click.exceptions.Exit as exc:
        sys.exit(exc.exit_code)
    except KeptError as exc:
        if debug:
            _show_traceback()
        fail(exc.code, exc.message, exc.hint, exc.exit_code, as_json=as_json)
    except click.exceptions.NoArgsIsHelpError as exc:  # in a script, this is a mistake
        from kept.cli.help import first_screen

        echo(first_screen(exc.ctx) if exc.ctx and exc.ctx.command is cli else exc.message, err=True)
        sys.exit(2)
    except click.UsageError as exc:
        message = exc.format_message().rstrip()
        message += "" if message.endswith((".", "?", "!")) else "."  # a list of choices has none
        fail("usage", message, _usage_hint(exc), 2, as_json=as_json)
    except (KeyboardInterrupt, click.Abort):
        fail("interrupted", "Interrupted.", "Nothing is lost; run the command again.", INTERRUPTED, as_json=as_json)
    except BrokenPipeError:
        _discard_output()
        sys.exit(0)
    except Exception as exc:  # noqa: BLE001  (the last resort: one line and an exit code instead of a traceback)
        if debug:
            _show_traceback()
        _fail_unexpectedly(exc, as_json=as_json)
    sys.exit(0)


def _fail_unexpectedly(exc: Exception, *, as_json: bool) -> NoReturn:
    if isinstance(exc, OSError) and exc.errno in _OUTPUT_ERRORS:
        # Errors of files are KeptErrors by now: this one is of standard output.
        _discard_output()
        message = f"The output could not be written ({exc.strerror})."
        fail("write_failed", message, "Check the disk that it is redirected to.", _WRITE_FAILED, as_json=False)
    message = f"Unexpected error: {type(exc).__name__}: {exc}".rstrip(".: ") + "."
    hint = "Run the command again with --debug and report what it prints."
    fail("internal", message, hint, UNEXPECTED, as_json=as_json)


def _show_traceback() -> None:
    """Print the traceback in one write: a secret that is written in parts would not be redacted."""
    import traceback

    echo(traceback.format_exc(), err=True, nl=False)


def _usage_hint(error: click.UsageError) -> str:
    context = error.ctx
    if context is None:
        return "See 'kept --help'."
    hint = f"See '{context.command_path} --help'."
    takes_text = any(isinstance(param, click.Argument) for param in context.command.params)
    if isinstance(error, click.NoSuchOption) and takes_text:
        hint += f" If '{error.option_name}' is not an option, put '--' before it."
    return hint


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

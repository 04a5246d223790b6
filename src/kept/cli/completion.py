"""kept completion, and the names that a shell completes: notes, sessions, agents and settings"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem, get_completion_class

from kept.cli.output import echo
from kept.cli.root import COMPLETE_VARIABLE, Globals
from kept.config import LoadedConfig
from kept.errors import KeptError

Complete = Callable[[LoadedConfig, str], Iterable[str]]
_MAX_SESSIONS = 50


def attach(command: click.Command) -> None:
    """Let the parameters of a command, and of the commands in a group, complete their values."""
    for param in command.params:
        complete = _VALUES.get(param.name or "")
        if complete is not None and not isinstance(param.type, click.Path):
            setattr(param, "shell_complete", _completer(complete))  # noqa: B010  (the method of this parameter only)
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        attach(inner)


def _completer(complete: Complete) -> Callable[[click.Context, str], list[CompletionItem]]:
    def shell_complete(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        params = ctx.find_root().params  # the global options before the command
        options = Globals(
            params.get("home"), params.get("workspace"), params.get("agent"), params.get("config_file"), {}
        )
        try:
            values = complete(options.load(quietly=True), incomplete)
        except KeptError:  # broken settings, or an index that cannot be read: the command itself reports them
            return []
        return [CompletionItem(_for_shell(value)) for value in values if value.isprintable()]

    return shell_complete


def _for_shell(value: str) -> str:
    """Return a value as the shell needs it. Bash inserts it as it is; the others quote it themselves."""
    if not os.environ.get(COMPLETE_VARIABLE, "").startswith("bash"):
        return value
    return re.sub(r"([^\w@%+=:,./#-])", r"\\\1", value)


def _notes(loaded: LoadedConfig, start: str) -> Iterable[str]:
    from kept.index.sqlite.quick_reads import find_note_paths

    return find_note_paths(loaded.config.paths, loaded.config.workspace, start)


def _sessions(loaded: LoadedConfig, start: str) -> Iterable[str]:
    """Return the ids of sessions, the newest first: the names of transcripts begin with their time."""
    from kept.sessions.transcript_paths import TRANSCRIPT_ENDING, parse_transcript_name

    folder = loaded.config.paths.sessions
    names = sorted(os.listdir(folder) if os.path.isdir(folder) else (), reverse=True)
    ids = (parse_transcript_name(name)[0] for name in names if name.endswith(TRANSCRIPT_ENDING))
    return [session_id for session_id in ids if session_id.startswith(start)][:_MAX_SESSIONS]


def _agents(loaded: LoadedConfig, start: str) -> Iterable[str]:
    from kept.config.layers import agent_names

    names = agent_names(loaded.config.home, loaded.user_file.path)
    return [name for name in names if name.startswith(start)]


def _settings(loaded: LoadedConfig, start: str) -> Iterable[str]:
    from kept.config.setting import setting_names

    return [name for name in setting_names() if name.startswith(start)]


_VALUES: dict[str, Complete] = {
    "path": _notes,
    "to": _notes,
    "note": _notes,
    "reference": _sessions,
    "session": _sessions,
    "agent": _agents,
    "global_agent": _agents,
    "key": _settings,
}
"""What completes a parameter, by its name."""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for SHELL: commands, options, notes, sessions, agents and settings.

    For bash, add this to ~/.bashrc: eval "$(kept completion bash)". For zsh, the same with zsh to ~/.zshrc. For fish:
    kept completion fish > ~/.config/fish/completions/kept.fish
    """
    from kept.cli.root import cli

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, "kept", COMPLETE_VARIABLE).source()
    if shell == "bash":
        # Values are escaped for the shell, and neither split nor expanded again.
        script = script.replace("read type value", "read -r type value").replace("+=($value)", '+=("$value")')
    echo(script)

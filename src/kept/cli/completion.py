"""kept completion, and the names that a shell completes"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from kept.cli.output import echo, json_option, print_json
from kept.cli.root import COMPLETE_VARIABLE, Globals
from kept.config import Config, LoadedConfig
from kept.errors import KeptError

Complete = Callable[[LoadedConfig, str], Iterable[str]]
_MAX_SESSIONS = 50
_DAYS = ("today", "yesterday")


def attach(command: click.Command, path: str = "") -> None:
    """Let the parameters of a command, and of the commands in a group, complete their values."""
    for param in command.params:
        complete = _BY_COMMAND.get((path, param.name or "")) or _BY_NAME.get(param.name or "")
        if complete is not None:
            setattr(param, "shell_complete", _completer(complete))  # noqa: B010  (the method of this parameter only)
    for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
        attach(inner, f"{path} {name}".strip())


def _completer(complete: Complete) -> Callable[[click.Context, str], list[CompletionItem]]:
    def shell_complete(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        try:
            values = complete(_load(ctx), incomplete)
        except KeptError:  # broken settings are reported by the command itself
            return []
        return [CompletionItem(_for_shell(value)) for value in values if value.isprintable()]

    return shell_complete


def _load(ctx: click.Context) -> LoadedConfig:
    """Return the settings, with the global options that are before the command."""
    params: dict[str, Any] = ctx.find_root().params
    options = Globals(params.get("home"), params.get("workspace"), params.get("agent"), params.get("config_file"), {})
    return options.load_quietly()


def _for_shell(value: str) -> str:
    """Return a value as the shell needs it. Bash inserts it as it is; the others quote it themselves."""
    if not os.environ.get(COMPLETE_VARIABLE, "").startswith("bash"):
        return value
    return re.sub(r"([^\w@%+=:,./#-])", r"\\\1", value)


# values


def _notes(loaded: LoadedConfig, start: str) -> Iterable[str]:
    from kept.store.name_list import find_note_paths

    return find_note_paths(loaded.config, start)


def _notes_and_days(loaded: LoadedConfig, start: str) -> Iterable[str]:
    return [*(day for day in _DAYS if day.startswith(start)), *_notes(loaded, start)]


def _tags(loaded: LoadedConfig, start: str) -> Iterable[str]:
    from kept.store.name_list import find_tags

    return find_tags(loaded.config, start.removeprefix("#"))


def _channels(loaded: LoadedConfig, start: str) -> Iterable[str]:
    from kept.store.name_list import find_channels

    return find_channels(loaded.config, start)


def _sessions(loaded: LoadedConfig, start: str) -> Iterable[str]:
    """Return the ids of sessions, the newest first: the names of transcripts begin with their time."""
    from kept.sessions.transcript_paths import TRANSCRIPT_ENDING, parse_transcript_name

    names = sorted(_names_in(loaded.config.paths.sessions), reverse=True)
    ids = (parse_transcript_name(name)[0] for name in names if name.endswith(TRANSCRIPT_ENDING))
    return [session_id for session_id in ids if session_id.startswith(start)][:_MAX_SESSIONS]


def _agents(loaded: LoadedConfig, start: str) -> Iterable[str]:
    from kept.config.agents import agent_names

    names = agent_names(loaded.config.home, loaded.user_file.path)
    return [name for name in names if name.startswith(start)]


def _settings(loaded: LoadedConfig, start: str) -> Iterable[str]:
    return [name for name in _setting_names(loaded.config) if name.startswith(start)]


def _assignments(loaded: LoadedConfig, start: str) -> Iterable[str]:
    return [] if "=" in start else [f"{name}=" for name in _settings(loaded, start)]


def _setting_names(config: Config) -> list[str]:
    from kept.config.layers import settings_of

    parts = ((config.agent, ""), (config.gateway, "gateway"))
    return [name for part, at in parts for name, _, _ in settings_of(part, at)]


def _setting_groups(loaded: LoadedConfig, start: str) -> Iterable[str]:
    """Return settings and the groups that they are in: 'kept config explain' takes both."""
    names = [name.split(".") for name in _setting_names(loaded.config)]
    prefixes = {".".join(parts[:depth]) for parts in names for depth in range(1, len(parts) + 1)}
    return sorted(prefix for prefix in prefixes if prefix.startswith(start))


def _providers(loaded: LoadedConfig, start: str) -> Iterable[str]:
    from kept.embedding.registry import PROVIDERS

    return [name for name in PROVIDERS if name.startswith(start)]


def _commands(loaded: LoadedConfig, start: str) -> Iterable[str]:
    from kept.cli.root import COMMANDS

    return [name for name in COMMANDS if name.startswith(start)]


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


_BY_NAME: dict[str, Complete] = {
    "agent": _agents,
    "global_agent": _agents,
    "settings": _assignments,
    "global_settings": _assignments,
    "tags": _tags,
    "channel": _channels,
    "session": _sessions,
}
_BY_COMMAND: dict[tuple[str, str], Complete] = {
    ("get", "path"): _notes_and_days,
    ("search", "path"): _notes,
    ("list", "path"): _notes,
    ("links", "note"): _notes,
    ("add", "to"): _notes,
    ("config explain", "key"): _setting_groups,
    ("config get", "key"): _setting_groups,
    ("config set", "key"): _settings,
    ("config unset", "key"): _settings,
    ("models test", "provider"): _providers,
    ("bench", "provider"): _providers,
    ("help", "names"): _commands,
    **{(f"sessions {name}", "reference"): _sessions for name in ("show", "reset", "compact", "delete", "export")},
}


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
def command(shell: str, as_json: bool) -> None:
    """Print the completion script for SHELL: commands, options, notes, tags, sessions, agents and settings.

    For bash, add this to ~/.bashrc: eval "$(kept completion bash)". For zsh, the same with zsh to ~/.zshrc. For fish:
    kept completion fish > ~/.config/fish/completions/kept.fish
    """
    from kept.cli.root import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"No completion for {shell}.")
    script = kind(cli, {}, "kept", COMPLETE_VARIABLE).source()
    if shell == "bash":
        # Values are escaped for the shell, and neither split nor expanded again.
        script = script.replace("read type value", "read -r type value").replace("+=($value)", '+=("$value")')
    print_json({"shell": shell, "script": script}) if as_json else echo(script)

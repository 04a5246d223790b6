"""Options that all commands share, before the command or after it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import click

from kept.base.values import frozen
from kept.errors import UsageError


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

"""The command that starts `kept` on the memory of this configuration.

`client_command` goes into the settings of another program: only what differs from the defaults, as arguments, since
such a program passes little of its environment on. `child_command` is for a child process of this run: everything is
given, settings of this run included.
"""

from __future__ import annotations

import os
import shlex
import sys

from kept.base.values import frozen
from kept.config import LoadedConfig
from kept.config.read import settings_of


@frozen
class ServerCommand:
    program: str
    options: tuple[str, ...]
    """Global options, which go before the name of the command: whose memory, and where."""

    def args(self, *command: str) -> list[str]:
        return [*self.options, *command]

    def shell(self, *command: str) -> str:
        return shlex.join([self.program, *self.options, *command])


def client_command(loaded: LoadedConfig) -> ServerCommand:
    config = loaded.config
    options: list[str] = []
    if config.home != os.path.expanduser("~/.kept"):
        options += ["--home", config.home]
    if config.agent_id != "main":
        options += ["--agent", config.agent_id]
    user_file = loaded.user_file.path
    if user_file != os.path.join(config.home, "config.yaml"):
        options += ["--config", user_file]
    if loaded.origins.get("workspace") in ("environment", "flags"):
        options += ["--workspace", config.workspace]
    return ServerCommand(_program(), tuple(options))


def _program() -> str:
    """Return the full path of the running program: a client started from a desktop has another PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "kept")
    return beside if os.path.isfile(beside) else os.path.abspath(sys.argv[0])


def child_command(loaded: LoadedConfig) -> tuple[str, ...]:
    """Return the arguments that start `kept mcp` on the same files. A program that uses Kept as a library may not have
    the script `kept`, so this starts Python."""
    config = loaded.config
    memory = ("--home", config.home, "--workspace", config.workspace, "--agent", config.agent_id)
    file = ("--config", loaded.user_file.path) if loaded.user_file.exists else ()
    start = (sys.executable, "-c", "from kept.cli import main; main()")
    return (*start, *memory, *file, "mcp")


def child_environment(loaded: LoadedConfig) -> dict[str, str]:
    """Return the provider keys, and the settings that this run has from its environment and command line, as variables.
    The tools only need the settings of the memory."""
    set_here = {name for name, layer in loaded.origins.items() if layer in ("environment", "flags")}
    settings = {
        f"KEPT_{name.upper().replace('.', '__')}": str(value)
        for name, value, _ in settings_of(loaded.config.agent)
        if name in set_here
        and name.startswith(("memory_search.", "workspace_layout"))
        and isinstance(value, str | int | float)
    }
    return {**settings, **loaded.config.keys.as_environment()}

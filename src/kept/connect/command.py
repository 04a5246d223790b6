"""How a client starts `kept`. It passes on little of its own environment, so what matters stands in the arguments."""

from __future__ import annotations

import os
import shlex
import sys

from kept.config import LoadedConfig
from kept.values import frozen


@frozen
class ServerCommand:
    program: str
    options: tuple[str, ...]
    """What stands before the name of the command: whose memory, and where."""

    def args(self, *more: str) -> list[str]:
        return [*self.options, *more]

    def shell(self, *more: str) -> str:
        return shlex.join([self.program, *self.options, *more])


def command_for(loaded: LoadedConfig) -> ServerCommand:
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
    """The program that is running, by its whole path: a client started from a desktop has another PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "kept")
    return beside if os.path.isfile(beside) else os.path.abspath(sys.argv[0])

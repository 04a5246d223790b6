"""Where everything is wired together for the programs that people run."""

from __future__ import annotations

from kept.config import LoadedConfig
from kept.memory import Memory
from kept.workspace.paths import Workspace


def open_memory(loaded: LoadedConfig) -> Memory:
    """The memory that a configuration describes. Its workspace has to be there."""
    Workspace.at(loaded.config.workspace).require()
    return Memory(loaded.config)

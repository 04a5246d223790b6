"""Where everything is wired together for the programs that people run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kept.config import LoadedConfig

if TYPE_CHECKING:
    from kept.memory import Memory
    from kept.sessions.store import SessionStore


def open_memory(loaded: LoadedConfig) -> Memory:
    """The memory that a configuration describes. Its workspace has to be there."""
    from kept.memory import Memory
    from kept.workspace.paths import Workspace

    Workspace.at(loaded.config.workspace).require()
    return Memory(loaded.config)


def open_sessions(loaded: LoadedConfig) -> SessionStore:
    """The conversations of the agent that a configuration describes. They need no workspace."""
    from kept.sessions.store import SessionStore

    return SessionStore(loaded.config)

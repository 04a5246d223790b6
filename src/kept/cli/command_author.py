"""The author that the history records for a command: the tool is the command, the person who is logged in ran it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kept.workspace.change_recorder import Author

if TYPE_CHECKING:
    from kept.config import Config
    from kept.history.note_history import HistoryRecorder


def command_author(agent_id: str, command: str) -> Author:
    person = os.environ.get("USER") or os.environ.get("LOGNAME")
    return Author(agent_id, tool=f"kept {command}", person=person)


def command_recorder(config: Config, command: str, *, why: str = "") -> HistoryRecorder | None:
    """Return the recorder for changes that a command makes without a memory, or None if the history is off."""
    from kept.clock import SystemClock
    from kept.history.note_history import open_recorder
    from kept.workspace.workspace import Workspace

    author = command_author(config.agent_id, command)
    return open_recorder(config, Workspace.of(config), SystemClock(), author, why=why)

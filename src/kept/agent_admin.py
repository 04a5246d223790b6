"""Lists the agents of a home, and removes one.

A removed agent loses its entry in the settings, and its conversations move to HOME/removed-agents. Its notes stay where
they are.
"""

from __future__ import annotations

import os

from kept.config import LoadedConfig
from kept.config.agents import settings_by_agent
from kept.config.edit import remove_agent_entry
from kept.config.layers import MAIN_AGENT, is_same_folder
from kept.durable import make_private_folder, sync_folder
from kept.errors import UsageError, WorkspaceError
from kept.sessions.transcript_paths import iter_transcripts
from kept.values import frozen
from kept.workspace.scan import scan_workspace
from kept.workspace.workspace import Workspace

REMOVED_FOLDER = "removed-agents"


@frozen
class AgentSummary:
    """An agent, where its notes are, and how much it has."""

    name: str
    workspace: str
    shared_with: tuple[str, ...]
    """Other agents with the same notes."""
    notes: int | None
    """None if the workspace does not exist."""
    sessions: int
    model: str | None
    """Model that the settings name, or None for the default."""


def list_agents(loaded: LoadedConfig) -> list[AgentSummary]:
    """Return all agents, the main one first."""
    agents = settings_by_agent(loaded)
    return [_summarise(name, agents) for name in agents]


def _summarise(name: str, agents: dict[str, LoadedConfig]) -> AgentSummary:
    config, origins = agents[name].config, agents[name].origins
    notes = Workspace.of(config)
    scan = scan_workspace(notes, max_bytes=config.memory_search.max_file_bytes) if os.path.isdir(notes.root) else None
    return AgentSummary(
        name=name,
        workspace=notes.root,
        shared_with=_sharing(name, agents),
        notes=None if scan is None else len(scan.files),
        sessions=_count_sessions(config.paths.sessions),
        model=config.agent.model.name if "model.name" in origins else None,
    )


def _sharing(name: str, agents: dict[str, LoadedConfig]) -> tuple[str, ...]:
    own = agents[name].config.workspace
    others = ((other, loaded.config.workspace) for other, loaded in agents.items() if other != name)
    return tuple(other for other, folder in others if is_same_folder(folder, own))


def _count_sessions(folder: str) -> int:
    try:
        return sum(1 for _ in iter_transcripts(folder))
    except OSError:
        return 0


# removing


def remove_agent(loaded: LoadedConfig) -> list[str]:
    """Remove an agent. Return the folders that still exist, the notes first.

    Raise an error if it cannot be removed: it is the main one, or a process is using it.
    """
    from kept.live import find_watcher

    config = loaded.config
    if config.agent_id == MAIN_AGENT:
        raise UsageError("The agent 'main' cannot be removed.", hint="Every memory has it.")
    if process := find_watcher(config):
        raise WorkspaceError(
            f"Process {process} is using the agent '{config.agent_id}'.", hint="Stop it first; nothing was changed."
        )
    own = settings_by_agent(loaded)[config.agent_id].config
    remove_agent_entry(loaded)
    folders = [own.workspace] if os.path.isdir(own.workspace) else []
    if os.path.isdir(config.paths.folder):
        folders.append(_set_aside(config.home, config.agent_id))
    return folders


def _set_aside(home: str, name: str) -> str:
    """Move the folder of an agent out of HOME/agents, where it would still count. Return the new path."""
    parent = os.path.join(home, REMOVED_FOLDER)
    make_private_folder(parent)
    target, number = os.path.join(parent, name), 1
    while os.path.lexists(target):
        number += 1
        target = os.path.join(parent, f"{name}-{number}")
    os.rename(os.path.join(home, "agents", name), target)
    sync_folder(parent)
    return target


def make_agent_folder(loaded: LoadedConfig) -> bool:
    """Make the folder of an agent, so that the agent exists. Return whether conversations of a removed one are back."""
    config = loaded.config
    removed = os.path.join(config.home, REMOVED_FOLDER, config.agent_id)
    if os.path.isdir(config.paths.folder) or not os.path.isdir(removed):
        make_private_folder(config.paths.folder)
        return False
    make_private_folder(os.path.dirname(config.paths.folder))
    os.rename(removed, config.paths.folder)
    return True

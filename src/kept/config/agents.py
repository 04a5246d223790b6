"""Finds the agents there are, and those that share a workspace.

An agent exists if it is the main one, has an entry in agents.list, or has a folder below HOME/agents.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from kept.config.layers import (
    MAIN_AGENT,
    LoadedConfig,
    check_agent_id,
    environment_layer,
    is_same_folder,
    load_config,
    resolve_workspace,
    user_layers,
)
from kept.config.read_file import read_yaml
from kept.errors import AgentNotFound, ConfigError

_MAX_NAMES = 10


def agent_names(home: str, user_file: str) -> list[str]:
    """Return the names of all agents, the main one first."""
    others = {*filter(is_agent_id, (*_listed(user_file), *_used(home)))} - {MAIN_AGENT}
    return [MAIN_AGENT, *sorted(others)]


def has_agent(home: str, user_file: str, agent_id: str) -> bool:
    if agent_id == MAIN_AGENT or os.path.isdir(os.path.join(home, "agents", agent_id)):
        return True
    return agent_id in _listed(user_file)


def require_agent(home: str, user_file: str, agent_id: str) -> None:
    """Raise AgentNotFound if there is no such agent. A misspelt name must not open another memory, or create one."""
    if has_agent(home, user_file, agent_id):
        return
    names = agent_names(home, user_file)
    shown = ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")
    raise AgentNotFound(
        f"There is no agent '{agent_id}'. There {'is' if len(names) == 1 else 'are'}: {shown}.",
        hint=f"Create it with 'kept --agent {agent_id} init', or check --agent and KEPT_AGENT.",
    )


def agents_sharing_workspace(loaded: LoadedConfig) -> list[str]:
    """Return the names of the other agents that use this agent's workspace."""
    config = loaded.config
    user_file = loaded.user_file.path
    from_env = environment_layer(os.environ)
    others = sorted({*agent_names(config.home, user_file)} - {config.agent_id})

    def workspace_of(agent: str) -> str:
        return resolve_workspace(config.home, agent, [*user_layers(user_file, agent), from_env])

    return [agent for agent in others if is_same_folder(workspace_of(agent), config.workspace)]


def settings_by_agent(loaded: LoadedConfig) -> dict[str, LoadedConfig]:
    """Return the settings of every agent by its name. A workspace that only this run uses does not count."""
    config, file = loaded.config, loaded.user_file
    environ = {
        name: value for name, value in os.environ.items() if name not in ("KEPT_WORKSPACE", "KEPT_WORKSPACE_LAYOUT")
    }
    return {
        name: load_config(home=config.home, agent=name, config_file=file.path if file.exists else None, environ=environ)
        for name in agent_names(config.home, file.path)
    }


def _listed(user_file: str) -> Iterator[str]:
    agents = read_yaml(user_file).get("agents") or {}
    entries = agents.get("list") if isinstance(agents, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and "id" in entry:
            yield str(entry["id"])


def _used(home: str) -> list[str]:
    """Return the agents that have a folder, including those that the settings do not name."""
    try:
        with os.scandir(os.path.join(home, "agents")) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except OSError:
        return []


def is_agent_id(text: str) -> bool:
    """Return whether a text can be the id of an agent."""
    try:
        check_agent_id(text)
    except ConfigError:
        return False
    return True

"""Finds the agents there are, and those that share a workspace."""

from __future__ import annotations

import os
from collections.abc import Iterator

from kept.config.layers import (
    LoadedConfig,
    check_agent_id,
    environment_layer,
    is_same_folder,
    resolve_workspace,
    user_layers,
)
from kept.config.settings_file import read_yaml
from kept.errors import ConfigError


def list_agents(loaded: LoadedConfig) -> list[str]:
    """Return the agents that the settings name or that have files, and the one in use."""
    names = {*filter(_is_name, (*_listed(loaded.user_file.path), *_used(loaded.config.home)))}
    return sorted(names | {loaded.config.agent_id})


def agents_sharing_workspace(loaded: LoadedConfig) -> list[str]:
    """Return the names of the other agents that use this agent's workspace."""
    config = loaded.config
    user_file = loaded.user_file.path
    from_env = environment_layer(os.environ)
    others = [agent for agent in list_agents(loaded) if agent != config.agent_id]

    def workspace_of(agent: str) -> str:
        return resolve_workspace(config.home, agent, [*user_layers(user_file, agent), from_env])

    return [agent for agent in others if is_same_folder(workspace_of(agent), config.workspace)]


def _listed(user_file: str) -> Iterator[str]:
    agents = read_yaml(user_file).get("agents") or {}
    for entry in agents.get("list") or ():
        yield str(entry["id"])


def _used(home: str) -> list[str]:
    """Return the agents that have files, including those that the settings do not name."""
    try:
        return os.listdir(os.path.join(home, "agents"))
    except OSError:
        return []


def _is_name(text: str) -> bool:
    try:
        check_agent_id(text)
    except ConfigError:
        return False
    return True

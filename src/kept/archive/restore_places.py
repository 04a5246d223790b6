"""Places of the files of an archive on this machine, and the settings that they need there.

An archive names folders of the machine that it was made on. They are used only on request (``same_folders``): an
archive from a stranger must not choose where its files go.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from kept.agent_admin import REMOVED_FOLDER
from kept.archive.manifest import ArchivedAgent, ArchiveHeader
from kept.archive.member_names import AGENTS, NOTES, SETTINGS, MemberPath
from kept.config.edit import put_entry
from kept.config.layers import check_agent_id, default_workspace, expand, is_same_folder, layers_of_tree, user_layers
from kept.config.settings_file import parse_settings
from kept.durable import read_or_empty
from kept.errors import ArchiveRefused, ConfigError, UsageError
from kept.values import frozen


@frozen
class RestorePlaces:
    home: str
    agents: tuple[ArchivedAgent, ...]
    """Agents to restore."""
    workspaces: Mapping[str, str]
    """Folder for each set of notes in the archive."""

    def find(self, member: MemberPath) -> tuple[str, tuple[str, ...]] | None:
        """Return the folder that a member belongs below, and its path there; None if it is not restored."""
        if member.root == SETTINGS:
            return None
        if member.root == NOTES:
            folder = self.workspaces.get(member.agent)
            return None if folder is None else (folder, member.parts)
        if member.root == AGENTS:
            is_chosen = any(agent.name == member.agent for agent in self.agents)
            return (os.path.join(self.home, "agents", member.agent), member.parts) if is_chosen else None
        return os.path.join(self.home, REMOVED_FOLDER, member.agent), member.parts


def plan_places(
    header: ArchiveHeader,
    *,
    home: str,
    user_file: str,
    agent: str | None,
    workspace: str | None,
    workspace_agent: str,
    same_folders: bool,
) -> RestorePlaces:
    """Return where files go.

    Notes go to ``workspace`` for the agent ``workspace_agent``, else to the workspace that the settings here name for
    the agent, else to its folder on the old machine with ``same_folders``, else to its default one.
    """
    agents = tuple(known for known in header.agents if agent in (None, known.name))
    if not agents:
        names = ", ".join(known.name for known in header.agents)
        raise UsageError(f"There is no agent '{agent}' in this archive.", hint=f"It has: {names}.")
    for known in agents:
        _require_name(known.name)
    workspaces: dict[str, str] = {}
    for known in sorted(agents, key=lambda known: known.name != known.notes):  # the owner of notes first
        if workspace and known.name == workspace_agent:
            workspaces[known.notes] = expand(workspace)
        elif known.notes not in workspaces:
            layers = user_layers(user_file, known.name)
            workspaces[known.notes] = _workspace_here(known, layers, home=home, same_folders=same_folders)
    return RestorePlaces(home, agents, workspaces)


def _require_name(name: str) -> None:
    try:
        check_agent_id(name)
    except ConfigError as exc:
        raise ArchiveRefused(f"The archive has an agent that cannot exist: {exc.message}") from exc


def _workspace_here(agent: ArchivedAgent, layers: Iterable[Any], *, home: str, same_folders: bool) -> str:
    named = _named_workspace(layers)
    if named:
        return named
    if same_folders and agent.workspace:
        return expand(agent.workspace)
    return default_workspace(home, agent.name)


def _named_workspace(layers: Iterable[Any]) -> str | None:
    named = [layer.agent["workspace"] for layer in layers if layer.agent.get("workspace")]
    return expand(str(named[-1])) if named else None


# settings


def plan_settings(places: RestorePlaces, user_file: str, archived: bytes | None) -> bytes | None:
    """Return the content of the settings file after a restore, or None if it stays as it is.

    ``archived`` are the settings of the archive if there are none here. Each agent gets an entry that names its
    workspace, unless the settings lead there already. Raise ConfigError if they cannot be used.
    """
    if archived is not None:
        for agent in places.agents:
            layers_of_tree(parse_settings(user_file, archived), user_file, agent.name)
    before = archived if archived is not None else read_or_empty(user_file)
    content = before
    for agent in places.agents:
        if values := _missing_values(places, agent, content):
            content = put_entry(content.decode("utf-8-sig"), agent.name, values).encode()
    return content if archived is not None or content != before else None


def _missing_values(places: RestorePlaces, agent: ArchivedAgent, content: bytes) -> dict[str, str]:
    """Return what the entry of an agent must say so that its notes are found where they are restored to."""
    layers = layers_of_tree(parse_settings("", content), "", agent.name)
    chosen = places.workspaces[agent.notes]
    named = _named_workspace(layers)
    here = named or default_workspace(places.home, agent.name)
    values = {} if is_same_folder(here, chosen) else {"workspace": chosen}
    layouts = [layer.agent["workspace_layout"] for layer in layers if layer.agent.get("workspace_layout")]
    if agent.layout != (layouts[-1] if layouts else "kept") and (values or named is None):
        values["workspace_layout"] = agent.layout
    return values

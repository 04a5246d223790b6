"""Places of the files of an archive on this machine, and the settings that they need there.

An archive names folders of the machine that it was made on. They are used only on request (``same_folders``): an
archive from a stranger must not choose where its files go.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kept.agent_admin import REMOVED_FOLDER
from kept.archive.archive_file import AGENTS, NOTES, SETTINGS, ArchivedAgent, Manifest, MemberPath
from kept.archive.settings_copy import copy_settings
from kept.config.edit import locked_settings, put_entry
from kept.config.layers import (
    MAIN_AGENT,
    check_agent_id,
    default_workspace,
    expand,
    is_same_folder,
    layers_of_tree,
    user_layers,
)
from kept.config.settings_file import parse_settings, read_settings
from kept.durable import write_atomic
from kept.errors import ArchiveRefused, ConfigError, UsageError
from kept.values import frozen


@frozen
class RestorePlaces:
    home: str
    agents: tuple[ArchivedAgent, ...]
    """Agents to restore."""
    workspaces: Mapping[str, str]
    """Folder for each set of notes in the archive."""

    def find(self, member: MemberPath) -> str | None:
        """Return the folder that a member belongs below; None if it is not restored."""
        if member.root == SETTINGS:
            return None
        if member.root == NOTES:
            return self.workspaces.get(member.agent)
        if member.root == AGENTS:
            is_chosen = any(agent.name == member.agent for agent in self.agents)
            return os.path.join(self.home, AGENTS, member.agent) if is_chosen else None
        return os.path.join(self.home, REMOVED_FOLDER, member.agent)


def plan_places(
    manifest: Manifest, home: str, user_file: str, agent: str | None, workspace: str | None, *, same_folders: bool
) -> RestorePlaces:
    """Return where files go.

    Notes go to ``workspace``, else to the workspace that the settings here name for the agent, else to its folder on
    the old machine with ``same_folders``, else to its default one.
    """
    agents = tuple(known for known in manifest.agents if agent in (None, known.name))
    if not agents:
        names = ", ".join(known.name for known in manifest.agents)
        raise UsageError(f"There is no agent '{agent}' in this archive.", hint=f"It has: {names}.")
    workspaces: dict[str, str] = {}
    for known in sorted(agents, key=lambda known: known.name != known.notes):  # the owner of notes first
        try:
            check_agent_id(known.name)
        except ConfigError as exc:
            raise ArchiveRefused(f"The archive has an agent that cannot exist: {exc.message}") from exc
        if workspace and known.name == (agent or MAIN_AGENT):
            workspaces[known.notes] = expand(workspace)
        elif known.notes not in workspaces:
            old = expand(known.workspace) if same_folders and known.workspace else None
            named = _named_workspace(user_layers(user_file, known.name))
            workspaces[known.notes] = named or old or default_workspace(home, known.name)
    return RestorePlaces(home, agents, workspaces)


# settings


@frozen
class SettingsPlan:
    outcome: str
    before: bytes | None
    content: bytes | None
    """New content of the settings file, or None to leave it."""
    problem: str = ""

    @classmethod
    def of(cls, archived: bytes | None, places: RestorePlaces, user_file: str) -> SettingsPlan:
        here = read_settings(user_file)
        if archived is None or here:
            is_same = archived is not None and copy_settings(user_file, here or b"").content == archived
            outcome = "none" if archived is None else "same" if is_same else "kept"
            return cls(outcome, here, _plan_entries(places, here or b""))
        try:
            for agent in places.agents:
                layers_of_tree(parse_settings(user_file, archived), user_file, agent.name)
            return cls("restored", here, _plan_entries(places, archived) or archived)
        except (ConfigError, UnicodeDecodeError) as exc:
            problem = exc.message if isinstance(exc, ConfigError) else "not UTF-8"
            return cls("refused", here, _plan_entries(places, b""), problem)

    def apply(self, user_file: str) -> None:
        if self.content is None:
            return
        with locked_settings(user_file) as real_path:
            if read_settings(real_path) != self.before:
                raise ConfigError(f"{user_file}: another program has changed it meanwhile.", hint="Run it again.")
            write_atomic(real_path, self.content)


def _plan_entries(places: RestorePlaces, before: bytes) -> bytes | None:
    """Return settings in which each agent has an entry that names its workspace, or None if they lead there already."""
    content = before
    for agent in places.agents:
        layers = layers_of_tree(parse_settings("", content), "", agent.name)
        chosen, named = places.workspaces[agent.notes], _named_workspace(layers)
        is_there = is_same_folder(named or default_workspace(places.home, agent.name), chosen)
        values = {} if is_there else {"workspace": chosen}
        layouts = [layer.agent["workspace_layout"] for layer in layers if layer.agent.get("workspace_layout")]
        if agent.layout != (layouts[-1] if layouts else "kept") and (values or named is None):
            values["workspace_layout"] = agent.layout
        if values:
            content = put_entry(content.decode("utf-8-sig"), agent.name, values).encode()
    return None if content == before else content


def _named_workspace(layers: Any) -> str | None:
    named = [layer.agent["workspace"] for layer in layers if layer.agent.get("workspace")]
    return expand(str(named[-1])) if named else None

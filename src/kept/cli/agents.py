"""kept config agents list | remove: the agents of a home. 'kept --agent NAME init' makes one."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import click

from kept.cli.root import Globals
from kept.config import LoadedConfig


@click.group("agents")
def command() -> None:
    """List and remove agents. Each has its own conversations, and its own notes unless they are shared.

    'kept --agent NAME init' adds one.
    """


@command.command("list")
@click.pass_obj
def list_all(options: Globals) -> None:
    """List the agents: where their notes are, and how many notes and conversations they have."""
    from kept.cli.output import print_json
    from kept.cli.terminal_layout import show_table
    from kept.config.layers import settings_by_agent

    agents = settings_by_agent(replace(options, agent="main").load())
    shapes = [_summarise(name, agents) for name in agents]
    if options.as_json:
        print_json({"agents": shapes})
        return
    headers = ("Agent", "Notes in", "Shared with", "Notes", "Conversations", "Model")
    show_table(headers, [_cells(**shape) for shape in shapes])


def _summarise(name: str, agents: dict[str, LoadedConfig]) -> dict[str, Any]:
    from kept.config.layers import is_same_folder
    from kept.notes.scan import scan_workspace
    from kept.notes.workspace import Workspace
    from kept.sessions.transcript_paths import iter_transcripts

    config = agents[name].config
    notes = Workspace.of(config)
    exists = os.path.isdir(notes.root)
    scan = scan_workspace(notes, max_bytes=config.memory_search.max_file_bytes) if exists else None
    others = ((other, loaded.config.workspace) for other, loaded in agents.items() if other != name)
    sessions = config.paths.sessions
    return {
        "name": name,
        "workspaceDir": notes.root,
        "sharedWith": [other for other, folder in others if is_same_folder(folder, notes.root)],
        "notes": None if scan is None else len(scan.files),
        "sessions": sum(1 for _ in iter_transcripts(sessions)) if os.path.isdir(sessions) else 0,
        "model": config.agent.model.name,
    }


def _cells(**shape: Any) -> tuple[Any, ...]:
    shape["sharedWith"] = ", ".join(shape["sharedWith"])
    shape["notes"] = "none yet" if shape["notes"] is None else shape["notes"]
    return tuple("" if value is None else value for value in shape.values())


@command.command("remove")
@click.argument("name")
@click.pass_obj
def remove(options: Globals, name: str) -> None:
    """Remove the agent NAME. Its notes stay, and its conversations are set aside."""
    folders = remove_agent(replace(options, agent=name, workspace=None).load())
    text = "\n".join([f"Agent {name} is removed.", *(f"Kept: {folder}" for folder in folders)])
    options.report({"name": name, "kept": folders}, text)


def remove_agent(loaded: LoadedConfig) -> list[str]:
    """Remove an agent from the settings, and move its conversations to HOME/removed-agents. Return the folders that
    still exist, the notes first.

    Raise an error if it cannot be removed: it is the main one, or a process is using it.
    """
    from kept.config.change_settings import remove_agent_entry
    from kept.config.layers import MAIN_AGENT, settings_by_agent
    from kept.errors import UsageError, WorkspaceError
    from kept.server.live import find_watcher

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
    from kept.base.durable import make_private_folder, sync_folder

    parent = os.path.join(home, "removed-agents")
    make_private_folder(parent)
    target, number = os.path.join(parent, name), 1
    while os.path.lexists(target):
        number += 1
        target = os.path.join(parent, f"{name}-{number}")
    os.rename(os.path.join(home, "agents", name), target)
    sync_folder(parent)
    return target

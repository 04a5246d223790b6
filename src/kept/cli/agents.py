"""kept config agents list | add | remove"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from kept.cli.output import echo, print_json, style
from kept.cli.root import Globals
from kept.errors import AgentNotFound, UsageError
from kept.wording import plural

if TYPE_CHECKING:
    from kept.agent_admin import AgentSummary


@click.group("agents")
def command() -> None:
    """List, add and remove agents. Each has its own conversations, and its own notes unless they are shared."""


@command.command("list")
@click.pass_obj
def list_all(options: Globals) -> None:
    """List the agents: where their notes are, and how many notes and conversations they have."""
    from kept.agent_admin import list_agents

    agents = list_agents(replace(options, agent="main").load())
    if options.as_json:
        print_json({"agents": [_summary_json(agent) for agent in agents]})
    else:
        _show_table(agents)


@command.command("add")
@click.argument("name")
@click.option("--workspace", metavar="DIR", help="Folder of its notes (default: HOME/workspace-NAME).")
@click.option("--share-notes-with", "shared", metavar="AGENT", help="Use the notes of this agent, such as main.")
@click.pass_obj
def add(options: Globals, name: str, workspace: str | None, shared: str | None) -> None:
    """Add the agent NAME, with notes of its own.

    If DIR has Markdown, all of it is indexed, as 'kept init DIR' does. The agent gets an entry in config.yaml.
    """
    from kept.config.layers import check_agent_id

    if workspace and shared:
        raise UsageError("An agent has either a workspace of its own or that of another.", hint="Give one of the two.")
    options = replace(options, agent=check_agent_id(name), workspace=None)
    _require_new(options)
    created = _share(options, shared) if shared else _make(options, workspace)
    agent = _summary(options)
    if options.as_json:
        print_json({"agent": _summary_json(agent), "created": created})
        return
    echo(f"Agent {style(name, fg='cyan')} is ready. Its notes are in {agent.workspace}, {_owner_text(agent)}.")
    if agent.sessions:
        echo(f"It has {plural(agent.sessions, 'conversation')} from before it was removed.")
    echo(f"Next: kept --agent {name} add 'something worth remembering', or kept --agent {name} connect CLIENT.")


@command.command("remove")
@click.argument("name")
@click.pass_obj
def remove(options: Globals, name: str) -> None:
    """Remove the agent NAME. Its notes stay, and its conversations are set aside."""
    from kept.agent_admin import remove_agent

    folders = remove_agent(replace(options, agent=name, workspace=None).load())
    if options.as_json:
        print_json({"name": name, "kept": folders})
        return
    echo(f"Agent {style(name, fg='cyan')} is removed.")
    for folder in folders:
        echo(f"Kept: {folder}")


# adding


def _require_new(options: Globals) -> None:
    try:
        loaded = options.load()
    except AgentNotFound:
        return
    raise UsageError(
        f"There is an agent '{loaded.config.agent_id}' already.",
        hint="'kept config agents list' shows where its notes are.",
    )


def _make(options: Globals, workspace: str | None) -> list[str]:
    """Make a workspace and the agent. Return the files that were created."""
    from kept.cli.init import index_adopted, initialise
    from kept.config.layers import default_workspace

    home = replace(options, agent="main").load().config.home
    folder = workspace or default_workspace(home, str(options.agent))
    outcome = initialise(options, folder)
    index_adopted(options, outcome)
    return outcome.created


def _share(options: Globals, other: str) -> list[str]:
    """Write an entry with the workspace of another agent."""
    from kept.agent_admin import make_agent_folder
    from kept.config.agents import settings_by_agent
    from kept.config.edit import put_agent_entry

    main = replace(options, agent="main").load()
    agents = settings_by_agent(main)
    if other not in agents:
        raise AgentNotFound(f"There is no agent '{other}'. There are: {', '.join(agents)}.")
    theirs = agents[other].config
    values = {"workspace": theirs.workspace}
    if theirs.agent.workspace_layout == "vault":
        values["workspace_layout"] = "vault"
    loaded = options.load(new_agent=True)
    put_agent_entry(loaded, values)
    make_agent_folder(loaded)
    return [] if loaded.user_file.exists else [loaded.user_file.path]


def _summary(options: Globals) -> AgentSummary:
    from kept.agent_admin import list_agents

    main = replace(options, agent="main").load()
    return next(agent for agent in list_agents(main) if agent.name == options.agent)


# showing


def _owner_text(agent: AgentSummary) -> str:
    return f"shared with {', '.join(agent.shared_with)}" if agent.shared_with else "its own"


def _summary_json(agent: AgentSummary) -> dict[str, Any]:
    return {
        "name": agent.name,
        "workspaceDir": agent.workspace,
        "shared": bool(agent.shared_with),
        "sharedWith": list(agent.shared_with),
        "notes": agent.notes,
        "sessions": agent.sessions,
        "model": agent.model,
    }


def _show_table(agents: list[AgentSummary]) -> None:
    from kept.cli.terminal_layout import show_table

    rows = [
        (
            agent.name,
            agent.workspace,
            _owner_text(agent),
            "none yet" if agent.notes is None else agent.notes,
            agent.sessions,
            agent.model or "",
        )
        for agent in agents
    ]
    show_table(("Agent", "Notes in", "", "Notes", "Conversations", "Model"), rows)

"""kept init"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from kept.agent.tools.record_json import to_json
from kept.base.durable import make_private_folder, write_atomic
from kept.base.limits import is_utf8
from kept.base.values import frozen
from kept.base.wording import plural, short_list
from kept.cli.index import report_lines
from kept.cli.options import kept_command, option, switch
from kept.cli.output import cyan, echo, progress_bar, warn
from kept.cli.root import Globals, command_recorder
from kept.config import LoadedConfig
from kept.config.layers import MAIN_AGENT, agent_names, is_same_folder, read_settings, resolve_workspace, user_settings
from kept.errors import KeptError, UsageError
from kept.notes.adopt import TEMPLATES, full_templates
from kept.notes.note_writer import create_note
from kept.notes.survey import find_layout, survey_workspace
from kept.notes.vault import find_program
from kept.notes.workspace import Workspace
from kept.storage.open import open_workspace

if TYPE_CHECKING:
    from kept.base.reports import SyncReport
    from kept.config.schema import WorkspaceLayout
    from kept.notes.daily import DailyNotes
    from kept.notes.survey import Survey

_ON_THIS_MACHINE = ("auto", "local", "llama_cpp", "ollama", "none")
_MAX_NAMES = 6


@kept_command("init")
@click.argument("folder", required=False)
@click.option(
    "--layout",
    type=click.Choice(["kept", "vault"]),
    help="vault: all Markdown in FOLDER is notes. kept: MEMORY.md and memory/. Default: vault if it has Markdown.",
)
@switch("--full", "Create the files of an agent too: AGENTS.md, SOUL.md, IDENTITY.md and others.")
@option(
    "--project",
    "[NAME]",
    "Keep notes for a repository apart instead: FOLDER is a clone of it (default: the current folder).",
    is_flag=False,
    flag_value="",
)
def command(
    options: Globals, folder: str | None, layout: WorkspaceLayout | None, full: bool, project: str | None
) -> None:
    """Create a workspace, or adopt a folder of Markdown as it is.

    FOLDER is the folder of the notes (default: ~/.kept/workspace). If it has Markdown, such as an Obsidian
    vault, all of it is indexed, in all folders, and nothing is added. If the settings name another workspace, they are
    changed. Files that exist are not changed.

    With --full, the files that tell an agent who it is and how to work are created too: AGENTS.md, SOUL.md,
    IDENTITY.md, TOOLS.md, HEARTBEAT.md and BOOTSTRAP.md, also in a vault.

    With --project, notes for one repository get a folder of their own in the workspace, memory/projects/NAME. Without
    NAME it is called like the repository. All clones of the same remote are one project.

    \b
    kept init ~/notes
    kept init --project
    """
    if project is not None:
        if layout or full:
            raise UsageError("--project goes with FOLDER only.", hint="Leave out the other options.")
        add_project(options, project, folder)
        return
    outcome = initialise(options, folder, layout, full=full)
    if not options.as_json:
        _show(outcome)
    is_vault, provider = outcome.layout == "vault", outcome.loaded.config.memory_search.provider
    report = _index(options.load(workspace=folder)) if is_vault and provider in _ON_THIS_MACHINE else None
    options.report(_outcome_json(outcome, report), _next_lines(outcome, report))


@frozen
class InitOutcome:
    loaded: LoadedConfig
    layout: WorkspaceLayout
    previous: str | None
    """The workspace that the settings named before, if that has changed."""
    created: list[str]
    survey: Survey
    daily: DailyNotes


def initialise(
    options: Globals, folder: str | None, layout: WorkspaceLayout | None = None, *, full: bool = False
) -> InitOutcome:
    """Make the workspace of an agent, and the agent itself if it is new. ``folder`` is None for the configured one.

    ``full`` creates the instructions of the agent too.
    """
    from kept.config.change_settings import locked_settings
    from kept.notes.daily import get_daily_notes

    loaded = options.load(workspace=folder, new_agent=True)
    if not is_utf8(loaded.config.workspace):
        raise UsageError("The path of the workspace is not valid UTF-8.", hint="Choose a folder with another name.")
    _plan(loaded, layout, is_named=folder is not None)  # raises before anything is created
    Workspace.at(loaded.config.workspace, layout="vault").make()
    with locked_settings(loaded.user_file.path) as file:
        # Read again: another command may have changed the settings before this one got the lock.
        loaded = options.load(workspace=folder, new_agent=True)
        chosen, text, previous = _plan(loaded, layout, is_named=folder is not None)
        # Nothing is added to somebody's vault, even if only the environment names it.
        is_foreign = layout is None and not loaded.config.trusts_workspace and text is None
        is_vault = chosen == "vault" or (is_foreign and find_layout(loaded.config.workspace) == "vault")
        notes = Workspace.at(loaded.config.workspace, layout="vault" if is_vault else "kept")
        notes.make()
        templates = full_templates() if full else {} if is_vault else TEMPLATES
        created = [name for name, text in templates.items() if create_note(notes, name, text)]
        if text is not None:
            write_atomic(file, text.encode())
            created += [] if loaded.user_file.exists else [loaded.user_file.path]
    if loaded.config.agent_id != MAIN_AGENT:
        make_private_folder(loaded.config.paths.folder)
    loaded = options.load(workspace=folder, settings={"workspace_layout": chosen})
    own = Workspace.of(loaded.config)
    survey = survey_workspace(own, max_bytes=loaded.config.memory_search.max_file_bytes)
    return InitOutcome(loaded, chosen, previous, created, survey, get_daily_notes(own))


# projects


def add_project(options: Globals, name: str, folder: str | None) -> None:
    """Make a project for the repository that a folder belongs to."""
    from kept.notes import projects

    if name and folder is None and (os.sep in name or name in (os.curdir, os.pardir, "~")):
        name, folder = "", name
    config = options.load().config
    workspace = Workspace.of(config)
    workspace.require()
    project, is_new = projects.plan_project(workspace, os.path.expanduser(folder or os.curdir), name or None)
    path = os.path.join(workspace.root, project.folder)
    if is_new:
        projects.add_project(workspace, project, recorder=command_recorder(config, "init --project"))
    repository = ", ".join(map(projects.show_key, project.keys))
    state = "is ready" if is_new else "exists already"
    text = f"Project {cyan(project.name)} {state}, for {repository}.\nIts notes are in {path}."
    if is_new:
        text += "\nNext: kept add --project 'something about it'. Agents that work in a clone write there from now on."
    shape = {"name": project.name, "remotes": list(project.keys), "path": path, "created": is_new}
    options.report(shape, text)


# settings


def _plan(
    loaded: LoadedConfig, layout: WorkspaceLayout | None, *, is_named: bool
) -> tuple[WorkspaceLayout, str | None, str | None]:
    """Return the layout, the new text of the settings or None to leave them, and the workspace that they named before
    if that changes. Nothing is written yet: a file that cannot be changed is an error up front.

    A new agent gets an entry in them, even in its default workspace.
    """
    from kept.config.change_settings import HEADER, put_entry, read_text

    config, path = loaded.config, loaded.user_file.path
    user, _ = user_settings(path, read_settings(path), config.agent_id, [])
    configured = resolve_workspace(config.home, config.agent_id, user)
    is_configured = is_same_folder(configured, config.workspace)
    is_recorded = is_named or is_configured or not loaded.user_file.exists
    if layout is None:
        # A workspace that the settings know keeps its layout until another one is asked for.
        is_set = is_configured or not is_recorded or "workspace_layout" in loaded.origins
        layout = config.agent.workspace_layout if is_set else find_layout(config.workspace)
    is_current = is_configured and user.get("workspace_layout", "kept") == layout
    is_known = is_current and config.agent_id in agent_names(config.home, path)
    if is_known or not is_recorded:
        return layout, None if loaded.user_file.exists else HEADER, None
    values = {"workspace": config.workspace}
    if layout == "vault" or "workspace_layout" in user:
        values["workspace_layout"] = layout
    previous = configured if not is_configured and os.path.isdir(configured) else None
    return layout, put_entry(read_text(path), config.agent_id, values), previous


def _index(loaded: LoadedConfig) -> SyncReport | None:
    """Index the notes of a vault."""
    from kept.memory import Memory

    try:
        with Memory.of(loaded) as memory, progress_bar("Indexing") as progress:
            return memory.sync(progress=progress)
    except KeptError as exc:  # the workspace is ready; the first search tries again
        warn(f"Not indexed yet: {exc.message}")
        return None


# showing


def _show(outcome: InitOutcome) -> None:
    config, is_vault = outcome.loaded.config, outcome.layout == "vault"
    kind = f" ({find_program(open_workspace(config)) or 'all Markdown in it'})" if is_vault else ""
    echo(f"Workspace: {cyan(config.workspace)}{kind}")
    echo(f"Settings:  {cyan(outcome.loaded.user_file.path)}")
    if is_vault:
        survey, daily = outcome.survey, outcome.daily
        echo(f"Notes:     {plural(survey.notes, 'note')} in {plural(survey.folders, 'folder')}")
        if names := [entry.path for entry in survey.left_out]:
            echo(f"Left out:  {short_list(names, _MAX_NAMES)}; 'kept index --verbose' says why")
        source = f", as in {daily.program}" if daily.program else ""
        echo(f"Daily:     {os.path.join(daily.folder, daily.format)}.md{source}")
        if daily.problem:
            warn(daily.problem)
    elif missed := outcome.survey.missed_markdown():
        warn(
            f"{plural(len(missed), 'Markdown file')} in this folder will not be searched, such as {missed[0]}. "
            f"To search all of them: kept init --layout vault {config.workspace}"
        )
    if outcome.created or not is_vault:
        echo(f"Created:   {', '.join(outcome.created)}" if outcome.created else "Everything exists already.")
    if outcome.previous is not None:
        echo(f"\nWorkspace was {outcome.previous}, is now {config.workspace}. Notes in the old folder stay there.")
    if not config.trusts_workspace:
        warn(f"The settings do not name this workspace. 'kept init {config.workspace}' makes it the agent's own.")


def _next_lines(outcome: InitOutcome, report: SyncReport | None) -> Iterator[str]:
    if report is not None:
        yield from report_lines(report)
    provider = outcome.loaded.config.memory_search.provider
    if outcome.layout == "kept":
        yield "\nNext: kept add 'something worth remembering', then kept search 'worth remembering'."
    elif provider in _ON_THIS_MACHINE:
        yield "\nNext: kept search 'a question', or kept list."
    else:
        yield f"\nNext: kept index sends the notes to {provider}."


def _outcome_json(outcome: InitOutcome, report: SyncReport | None) -> dict[str, Any]:
    return {
        "workspaceDir": outcome.loaded.config.workspace,
        "config": outcome.loaded.user_file.path,
        "created": outcome.created,
        "layout": outcome.layout,
        "previousWorkspace": outcome.previous,
        "notes": outcome.survey.notes,
        "leftOut": to_json(outcome.survey.left_out),
        "daily": to_json(outcome.daily),
        "indexed": to_json(report),
    }

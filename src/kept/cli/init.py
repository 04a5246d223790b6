"""kept init"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from kept.cli.output import echo, print_json, progress_bar, style, warn
from kept.cli.root import Globals, command_recorder
from kept.config import LoadedConfig
from kept.config.agents import has_agent
from kept.config.layers import MAIN_AGENT, default_workspace, is_same_folder, resolve_workspace, user_layers
from kept.durable import write_atomic
from kept.errors import KeptError, UsageError
from kept.limits import is_utf8
from kept.values import frozen
from kept.wording import plural
from kept.workspace.notes import create_note
from kept.workspace.survey import find_layout, survey_workspace
from kept.workspace.templates import FULL_TEMPLATES, TEMPLATES
from kept.workspace.workspace import Workspace

if TYPE_CHECKING:
    from kept.config.schema import WorkspaceLayout
    from kept.reports import SyncReport
    from kept.workspace.daily import DailyNotes
    from kept.workspace.survey import Survey

_ON_THIS_MACHINE = ("auto", "local", "llama_cpp", "ollama", "none")
_MAX_NAMES = 6


@click.command("init")
@click.argument("folder", required=False)
@click.option(
    "--layout",
    type=click.Choice(["kept", "vault"]),
    help="vault: all Markdown in FOLDER is notes. kept: MEMORY.md and memory/. Default: vault if it has Markdown.",
)
@click.option(
    "--full", is_flag=True, help="Create the files of an agent too: AGENTS.md, SOUL.md, IDENTITY.md and others."
)
@click.option(
    "--project",
    metavar="[NAME]",
    is_flag=False,
    flag_value="",
    help="Keep notes for a repository apart instead: FOLDER is a clone of it (default: the current folder).",
)
@click.pass_obj
def command(
    options: Globals,
    folder: str | None,
    layout: WorkspaceLayout | None,
    full: bool,
    project: str | None,
) -> None:
    """Create a workspace, or adopt a folder of Markdown as it is.

    FOLDER is the folder of the notes (default: ~/.kept/workspace). If it has Markdown, such as an Obsidian or Logseq
    vault, all of it is indexed, in all folders, and nothing is added. If the settings name another workspace, they are
    changed. Files that exist are not changed.

    With --full, the files that tell an agent who it is and how to work are created too: AGENTS.md, SOUL.md,
    IDENTITY.md, TOOLS.md, HEARTBEAT.md and BOOTSTRAP.md, also in a vault.

    With --project, notes for one repository get a folder of their own in the workspace, memory/projects/NAME. Without
    NAME it is called like the repository. All clones of the same remote are one project.
    """
    if project is not None:
        if layout or full:
            raise UsageError("--project goes with FOLDER only.", hint="Leave out the other options.")
        add_project(options, project, folder)
        return
    outcome = initialise(options, folder, layout, full=full)
    if options.as_json:
        report = index_adopted(options, outcome)
        print_json(_outcome_json(outcome, report))
        return
    show_outcome(outcome)
    report = index_adopted(options, outcome)
    if report is not None:
        from kept.cli.index import show_report

        show_report(report)
    from kept.cli.owner import ask_for_owner

    ask_for_owner(options.load_quietly())
    _show_next(outcome)


def initialise(
    options: Globals, folder: str | None, layout: WorkspaceLayout | None = None, *, full: bool = False
) -> InitOutcome:
    """Make the workspace of an agent, and the agent itself if it is new. ``folder`` is None for the configured one.

    ``full`` creates the instructions of the agent too.
    """
    loaded = options.load(workspace=folder, new_agent=True)
    config = loaded.config
    is_new_agent = not has_agent(config.home, loaded.user_file.path, config.agent_id)
    root = config.workspace
    if not is_utf8(root):
        raise UsageError("The path of the workspace is not valid UTF-8.", hint="Choose a folder with another name.")
    from kept.config.edit import locked_settings

    is_named = folder is not None
    _plan(loaded, layout, is_named=is_named, is_new_agent=is_new_agent)  # raises before anything is created
    Workspace.at(root, layout="vault").make()
    with locked_settings(loaded.user_file.path):
        # Read again: another command may have changed the settings before this one got the lock.
        loaded = options.load(workspace=folder, new_agent=True)
        plan, created = _apply(loaded, layout, is_named=is_named, is_new_agent=is_new_agent, full=full)
    if config.agent_id != MAIN_AGENT:
        from kept.agent_admin import make_agent_folder

        make_agent_folder(loaded)
    return _look(options, folder, plan, created)


# projects


def add_project(options: Globals, name: str, folder: str | None) -> None:
    """Make a project for the repository that a folder belongs to."""
    from kept.workspace import projects

    if name and folder is None and (os.sep in name or name in (os.curdir, os.pardir, "~")):
        name, folder = "", name
    config = options.load().config
    workspace = Workspace.of(config)
    workspace.require()
    planned = projects.plan_project(workspace, os.path.expanduser(folder or os.curdir), name or None)
    project = planned.project
    path = os.path.join(workspace.root, project.folder)
    if planned.is_new:
        projects.add_project(workspace, project, recorder=command_recorder(config, "init --project"))
    if options.as_json:
        print_json({"name": project.name, "remotes": list(project.keys), "path": path, "created": planned.is_new})
        return
    repository = ", ".join(map(projects.show_key, project.keys))
    state = "is ready" if planned.is_new else "exists already"
    echo(f"Project {style(project.name, fg='cyan')} {state}, for {repository}.\nIts notes are in {path}.")
    if planned.is_new:
        echo("Next: kept add --project 'something about it'. Agents that work in a clone write there from now on.")


# settings


@frozen
class InitPlan:
    layout: WorkspaceLayout
    file: str
    content: bytes | None
    """New content of the settings file, or None to leave it."""
    previous: str | None
    """The workspace that the settings named before, if that changes."""


def _apply(
    loaded: LoadedConfig, layout: WorkspaceLayout | None, *, is_named: bool, is_new_agent: bool, full: bool
) -> tuple[InitPlan, list[str]]:
    """Create the workspace and name it in the settings. Return the plan and the files that were created."""
    root = loaded.config.workspace
    plan = _plan(loaded, layout, is_named=is_named, is_new_agent=is_new_agent)
    # Nothing is added to somebody's vault, even if only the environment names it.
    is_foreign = layout is None and not loaded.config.trusts_workspace and plan.content is None
    is_vault = plan.layout == "vault" or (is_foreign and find_layout(root) == "vault")
    notes = Workspace.at(root, layout="vault" if is_vault else "kept")
    notes.make()
    templates = FULL_TEMPLATES if full else {} if is_vault else TEMPLATES
    created = [name for name, text in templates.items() if create_note(notes, name, text)]
    if plan.content is not None:
        write_atomic(plan.file, plan.content)
        created += [] if loaded.user_file.exists else [loaded.user_file.path]
    return plan, created


def _plan(loaded: LoadedConfig, layout: WorkspaceLayout | None, *, is_named: bool, is_new_agent: bool) -> InitPlan:
    """Plan the change of the settings. Nothing is written yet: a file that cannot be changed is an error up front.

    A new agent gets an entry in them, even in its default workspace.
    """
    config, path = loaded.config, loaded.user_file.path
    user = user_layers(path, config.agent_id)
    configured = resolve_workspace(config.home, config.agent_id, user)
    is_configured = is_same_folder(configured, config.workspace)
    layouts = [layer.agent["workspace_layout"] for layer in user if "workspace_layout" in layer.agent]
    is_recorded = is_named or is_configured or not loaded.user_file.exists
    if layout is None:
        # A workspace that the settings know keeps its layout until another one is asked for.
        is_set = is_configured or not is_recorded or "workspace_layout" in loaded.origins
        layout = config.agent.workspace_layout if is_set else find_layout(config.workspace)
    values = {"workspace": config.workspace}
    if layout == "vault" or layouts:
        values["workspace_layout"] = layout
    if not loaded.user_file.exists:
        return InitPlan(layout, path, _new_file(loaded, values, has_entry=is_new_agent).encode(), None)
    is_current = is_configured and (layouts[-1] if layouts else "kept") == layout
    if (is_current and not is_new_agent) or not is_recorded:
        return InitPlan(layout, path, None, None)
    from kept.config.edit import put_entry, read_text

    content = put_entry(read_text(path), config.agent_id, values).encode()
    previous = configured if not is_configured and os.path.isdir(configured) else None
    return InitPlan(layout, os.path.realpath(path), content, previous)


def _new_file(loaded: LoadedConfig, values: dict[str, str], *, has_entry: bool) -> str:
    """Return the text of a new settings file. It names the workspace of the main agent only if that is not the default,
    and for this agent only: under `defaults`, every agent would share it."""
    from kept.config.edit import HEADER, put_entry

    config = loaded.config
    is_default = config.workspace == default_workspace(config.home, config.agent_id)
    if is_default and "workspace_layout" not in values and not has_entry:
        return HEADER
    return put_entry(HEADER, config.agent_id, values)


# what there is


@frozen
class InitOutcome:
    loaded: LoadedConfig
    folder: str | None
    """The folder that was named, or None."""
    plan: InitPlan
    created: list[str]
    survey: Survey | None
    """Of a vault, and of a folder that has Markdown which is not indexed."""
    daily: DailyNotes
    program: str
    overridden_by: str | None
    """Workspace that later commands use instead, since the environment names it."""
    is_trusted: bool


def _look(options: Globals, folder: str | None, plan: InitPlan, created: list[str]) -> InitOutcome:
    from kept.workspace.daily import get_daily_notes
    from kept.workspace.vault import find_program

    loaded = options.load(workspace=folder, settings={"workspace_layout": plan.layout})
    own = Workspace.of(loaded.config)
    survey = survey_workspace(own, max_bytes=loaded.config.memory_search.max_file_bytes)
    later = options.load().config.workspace
    return InitOutcome(
        loaded=loaded,
        folder=folder,
        plan=plan,
        created=created,
        survey=survey if plan.layout == "vault" or survey.missed_markdown() else None,
        daily=get_daily_notes(own),
        program=find_program(own.root) if plan.layout == "vault" else "",
        overridden_by=later if folder is not None and not is_same_folder(later, own.root) else None,
        is_trusted=loaded.config.trusts_workspace,
    )


def index_adopted(options: Globals, outcome: InitOutcome) -> SyncReport | None:
    """Index the notes of a vault. Return None if that is for later: a provider elsewhere is sent the notes, and may
    cost."""
    settings = outcome.loaded.config.memory_search
    if outcome.plan.layout != "vault" or settings.provider not in _ON_THIS_MACHINE:
        return None
    from kept.app import open_memory

    try:
        with open_memory(options.load(workspace=outcome.folder)) as memory, progress_bar("Indexing") as progress:
            return memory.sync(progress=progress)
    except KeptError as exc:  # the workspace is ready; the first search tries again
        warn(f"Not indexed yet: {exc.message}")
        return None


# showing


def show_outcome(outcome: InitOutcome) -> None:
    config, plan = outcome.loaded.config, outcome.plan
    kind = f" ({outcome.program or 'all Markdown in it'})" if plan.layout == "vault" else ""
    echo(f"Workspace: {style(config.workspace, fg='cyan')}{kind}")
    echo(f"Settings:  {style(outcome.loaded.user_file.path, fg='cyan')}")
    if plan.layout == "vault" and outcome.survey is not None:
        _show_vault(outcome, outcome.survey)
    else:
        _show_created(outcome)
    if plan.previous is not None:
        echo(f"\nWorkspace was {plan.previous}, is now {config.workspace}. Notes in the old folder stay there.")
    if outcome.overridden_by is not None:
        warn(f"--workspace or KEPT_WORKSPACE names {outcome.overridden_by}, which is used instead of the settings.")
    elif not outcome.is_trusted:
        warn(f"The settings do not name this workspace. 'kept init {config.workspace}' makes it the agent's own.")


def _show_vault(outcome: InitOutcome, survey: Survey) -> None:
    more = "" if survey.is_complete else "more than "
    echo(f"Notes:     {more}{plural(survey.notes, 'note')} in {plural(survey.folders, 'folder')}")
    for text in left_out_lines(survey):
        echo(f"Left out:  {text}")
    daily = outcome.daily
    folder = f"{daily.folder}/" if daily.folder else ""
    source = f", as in {daily.program}" if daily.program else ""
    echo(f"Daily:     {folder}{daily.format}.md{source}")
    if daily.problem:
        warn(daily.problem)
    if outcome.created:
        echo(f"Created:   {', '.join(outcome.created)}")


def _show_created(outcome: InitOutcome) -> None:
    echo(f"Created:   {', '.join(outcome.created)}" if outcome.created else "Everything exists already.")
    missed = outcome.survey.missed_markdown() if outcome.survey else []
    if missed:
        warn(
            f"{plural(len(missed), 'Markdown file')} in this folder will not be searched, such as {missed[0]}. "
            f"To search all of them: kept init --layout vault {outcome.loaded.config.workspace}"
        )


def left_out_lines(survey: Survey) -> list[str]:
    """Return a line for each reason why files and folders are left out."""
    lines = []
    for names, reason in (
        (survey.paths("hidden", "skipped"), ""),
        (survey.paths("ignored"), "named by .gitignore, .keptignore or Obsidian's templates"),
        (survey.paths("link"), "symbolic links, which are not followed"),
        (survey.paths("ending"), "add their endings to memory_search.extensions to search them"),
    ):
        if names:
            more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
            lines.append(", ".join(names[:_MAX_NAMES]) + more + (f" ({reason})" if reason else ""))
    return lines


def _show_next(outcome: InitOutcome) -> None:
    if outcome.plan.layout == "kept":
        echo("\nNext: kept add 'something worth remembering', then kept search 'worth remembering'.")
        return
    settings = outcome.loaded.config.memory_search
    if settings.provider in _ON_THIS_MACHINE:
        echo("\nNext: kept search 'a question', or kept list.")
    else:
        echo(f"\nNext: kept index sends the notes to {settings.provider}; kept index --dry-run shows the cost.")


def _outcome_json(outcome: InitOutcome, report: SyncReport | None) -> dict[str, Any]:
    from kept.tools.record_json import to_json

    plan, survey, daily = outcome.plan, outcome.survey, outcome.daily
    return {
        "workspaceDir": outcome.loaded.config.workspace,
        "config": outcome.loaded.user_file.path,
        "created": outcome.created,
        "layout": plan.layout,
        "previousWorkspace": plan.previous,
        "program": outcome.program or None,
        "notes": survey.notes if survey else None,
        "leftOut": to_json(survey.left_out) if survey else [],
        "daily": {"folder": daily.folder, "format": daily.format, "problem": daily.problem or None},
        "indexed": to_json(report) if report else None,
    }

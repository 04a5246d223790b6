"""kept projects list | add | remove"""

from __future__ import annotations

import os
from typing import Any

import click

from kept.cli.command_author import command_recorder
from kept.cli.output import console, echo, json_option, print_json, printable, style
from kept.cli.root import Globals
from kept.config import Config
from kept.visibility import PROJECT_MARKER, project_of_path
from kept.workspace.projects import (
    Project,
    add_project,
    find_project,
    list_projects,
    plan_project,
    remove_project,
    show_key,
)
from kept.workspace.workspace import Workspace


@click.group("projects")
def command() -> None:
    """List, add and remove projects: notes for one repository, in memory/projects/NAME of the workspace."""


@command.command("list")
@json_option
@click.pass_obj
def list_all(options: Globals, as_json: bool) -> None:
    """List the projects, their repositories, and how many notes each has."""
    config = options.load().config
    workspace = Workspace.of(config)
    workspace.require()
    projects, current = list_projects(workspace), find_project(workspace, os.curdir)
    counts = _count_notes(config, workspace) if projects else {}
    shapes = [_project_json(project, workspace, counts.get(project.name, 0), current) for project in projects]
    if as_json:
        print_json({"projects": shapes, "current": current})
    elif not projects:
        echo("No projects. 'kept projects add' in the folder of a repository adds one.")
    else:
        _show_table(projects, counts, current)


@command.command("add")
@click.argument("name", required=False)
@click.argument("folder", metavar="[DIR]", required=False)
@json_option
@click.pass_obj
def add(options: Globals, name: str | None, folder: str | None, as_json: bool) -> None:
    """Keep notes for a repository apart.

    NAME is what the project is called (default: the name of the repository), DIR a folder in a clone (default: the
    current folder). All clones of the same remote are one project.
    """
    if name and folder is None and _is_folder(name):
        name, folder = None, name
    config = options.load().config
    workspace = Workspace.of(config)
    workspace.require()
    planned = plan_project(workspace, os.path.expanduser(folder or os.curdir), name)
    project = planned.project
    if planned.is_new:
        add_project(workspace, project, recorder=command_recorder(config, "projects add"))
    if as_json:
        print_json(
            {
                "name": project.name,
                "remotes": list(project.keys),
                "path": os.path.join(workspace.root, project.folder),
                "created": planned.is_new,
            }
        )
        return
    repository = ", ".join(map(show_key, project.keys))
    state = "is ready" if planned.is_new else "exists already"
    echo(f"Project {style(project.name, fg='cyan')} {state}, for {repository}.")
    echo(f"Its notes are in {os.path.join(workspace.root, project.folder)}.")
    if planned.is_new:
        echo("Next: kept add --project 'something about it'. Agents that work in a clone write there from now on.")


@command.command("remove")
@click.argument("name")
@json_option
@click.pass_obj
def remove(options: Globals, name: str, as_json: bool) -> None:
    """Separate the project NAME from its repository. Its notes stay."""
    config = options.load().config
    workspace = Workspace.of(config)
    workspace.require()
    folder = remove_project(workspace, name, recorder=command_recorder(config, "projects remove"))
    if as_json:
        print_json({"name": name, "kept": [folder]})
        return
    echo(f"Project {style(name, fg='cyan')} is for no repository now; agents no longer write there.")
    echo(f"Kept: {folder}. Move a note to memory/ to share it, or delete the folder.")


def _is_folder(text: str) -> bool:
    return os.sep in text or text in (os.curdir, os.pardir, "~")


def _count_notes(config: Config, workspace: Workspace) -> dict[str, int]:
    from collections import Counter

    from kept.workspace.scan import scan_workspace

    scan = scan_workspace(workspace, max_bytes=config.memory_search.max_file_bytes)
    notes = (file.path for file in scan.files if not file.path.endswith(f"/{PROJECT_MARKER}"))
    return Counter(name for path in notes if (name := project_of_path(path)))


def _project_json(project: Project, workspace: Workspace, notes: int, current: str | None) -> dict[str, Any]:
    return {
        "name": project.name,
        "remotes": list(project.keys),
        "path": os.path.join(workspace.root, project.folder),
        "notes": notes,
        "current": project.name == current,
    }


def _show_table(projects: list[Project], counts: dict[str, int], current: str | None) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Project", "Repository", "Notes"):
        table.add_column(column, overflow="fold", justify="right" if column == "Notes" else "left")
    for project in projects:
        name = f"{project.name} (here)" if project.name == current else project.name
        repository = ", ".join(map(show_key, project.keys)) or "none"
        cells = (name, repository, f"{counts.get(project.name, 0):,}")
        table.add_row(*(Text(printable(cell)) for cell in cells))
    console().print(table)

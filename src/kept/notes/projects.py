"""Projects: folders of notes below memory/projects, each for one repository.

An agent that works in a clone of the repository writes there, and finds these notes beside those that are shared. The
notes of a project are private to it: they are not found from inside another one. PROJECT.md in the folder has the
address of the repository in its properties; see `git_remote`. Moving a note to another folder shares it, or gives it to
another project.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from kept.base.git_remote import find_remote, find_root, folder_key, normalise_remote, repository_keys
from kept.base.limits import as_dict, as_list, is_utf8
from kept.base.safe_yaml import YamlRefused, load_yaml
from kept.base.values import frozen
from kept.base.visibility import PROJECT_MARKER, PROJECTS_FOLDER
from kept.config.layers import check_agent_id
from kept.errors import ConfigError, NotFound, UsageError, WorkspaceError
from kept.notes.history.note_history import HistoryRecorder, NoteEdit, commit_notes
from kept.notes.workspace import Workspace, has_projects, is_visible, list_names
from kept.storage.contract import retried

RESERVED = ("all", "none")
"""Words that mean something else where a project is named."""
_MAX_BYTES = 100_000
_MAX_NAMES = 10


@frozen
class Project:
    name: str
    keys: tuple[str, ...] = ()
    """Repositories and folders that it is for, as `git_remote` writes them."""

    @property
    def folder(self) -> str:
        """Path in the workspace."""
        return f"{PROJECTS_FOLDER}/{self.name}"


# finding


def list_projects(workspace: Workspace) -> list[Project]:
    """Return the projects by name. A folder without a readable PROJECT.md is one too, for no repository."""
    return [Project(name, _read_keys(_read_marker(workspace, name) or b"")) for name in _list_names(workspace)]


def find_project(workspace: Workspace, folder: str, *, recorded: str | None = None) -> str | None:
    """Return the name of the project that a folder of this machine belongs to, or None.

    ``recorded`` is the key of the repository that the folder was a clone of earlier, if that is known.
    """
    if not has_projects(workspace):
        return None
    keys = [*([recorded] if recorded else []), *repository_keys(folder)]
    return choose_project(list_projects(workspace), keys)


def choose_project(projects: Iterable[Project], keys: Iterable[str]) -> str | None:
    """Return the name of the project with the first of these keys that any project has."""
    names: dict[str, str] = {}
    for project in projects:
        for key in project.keys:
            names.setdefault(key, project.name)
    return next((names[key] for key in keys if key in names), None)


def get_project(workspace: Workspace, name: str) -> str:
    """Return the name of a project. ``name`` may also be a folder, such as '.', that belongs to one."""
    if os.sep in name or name in (os.curdir, os.pardir):
        project = find_project(workspace, os.path.expanduser(name))
        if project is None:
            raise NotFound(
                f"{os.path.abspath(os.path.expanduser(name))} does not belong to a project.",
                hint="Add one there: kept init --project",
            )
        return project
    names = _list_names(workspace)
    if name not in names:
        shown = f"There are: {', '.join(names[:_MAX_NAMES])}." if names else "There are none."
        raise NotFound(f"There is no project '{name}'. {shown}", hint="Add one: kept init --project")
    return name


def _list_names(workspace: Workspace) -> list[str]:
    names = list_names(workspace.storage, PROJECTS_FOLDER).items()
    return sorted(name for name, is_folder in names if is_folder and is_visible(name) and is_utf8(name))


def _read_marker(workspace: Workspace, name: str) -> bytes | None:
    try:
        return workspace.read(f"{PROJECTS_FOLDER}/{name}/{PROJECT_MARKER}", max_bytes=_MAX_BYTES).raw
    except WorkspaceError:
        return None


def _read_keys(raw: bytes) -> tuple[str, ...]:
    """Return the repositories and folders that PROJECT.md names in its properties."""
    properties = _read_properties(raw.decode("utf-8", "replace"))
    remotes = _as_texts(properties.get("remote")) + _as_texts(properties.get("remotes"))
    keys = [*map(normalise_remote, remotes), *map(folder_key, _as_texts(properties.get("folder")))]
    return tuple(dict.fromkeys(key for key in keys if key))


def _read_properties(text: str) -> dict[str, Any]:
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return {}
    end = next((number for number, line in enumerate(lines) if number and line.rstrip() in ("---", "...")), 0)
    try:
        return as_dict(load_yaml("\n".join(lines[1:end]), as_text=True))
    except YamlRefused:
        return {}


def _as_texts(value: Any) -> list[str]:
    return [text for text in as_list(value) or [value] if isinstance(text, str) and text]


# adding


def plan_project(workspace: Workspace, folder: str, name: str | None = None) -> tuple[Project, bool]:
    """Return the project for a folder, and whether it is new: then `add_project` makes it."""
    if name is not None:
        check_project_name(name)
    if not os.path.isdir(folder):
        raise UsageError(f"{folder}: there is no such folder.", hint="Name the folder of a repository.")
    root = find_root(folder) or os.path.abspath(folder)
    key = find_remote(root) or folder_key(os.path.basename(root))
    projects = list_projects(workspace)
    owner = next((project for project in projects if key in project.keys), None)
    if owner is not None:
        if name is not None and name != owner.name:
            raise UsageError(
                f"{show_key(key)} belongs to the project '{owner.name}'.",
                hint=f"To rename it, rename the folder {owner.folder} of the workspace.",
            )
        return owner, False
    taken = {project.name: project for project in projects}
    if name is None:
        name = _free_name(key, taken)
    elif name in taken and taken[name].keys:
        raise UsageError(
            f"The project '{name}' is for {', '.join(map(show_key, taken[name].keys))}.",
            hint=f"If both are the same project, add 'remote' in {taken[name].folder}/{PROJECT_MARKER}.",
        )
    return Project(name, (key,)), True


@retried
def add_project(workspace: Workspace, project: Project, *, recorder: HistoryRecorder | None = None) -> None:
    """Write the repository of a new project into PROJECT.md, above what is in it."""
    workspace.require()
    before = _read_marker(workspace, project.name)
    data = _format_properties(project).encode() + (b"\n" + before if before else b"")
    edit = NoteEdit(f"{project.folder}/{PROJECT_MARKER}", before, data, "edit")
    commit_notes(workspace, [edit], recorder)


def check_project_name(name: str) -> str:
    try:
        check_agent_id(name)
    except ConfigError as exc:
        raise UsageError(f"'{name}' cannot be a project's name.", hint=exc.hint) from None
    if name.lower() in RESERVED:
        raise UsageError(f"'{name}' cannot be a project's name: --project {name} means something else.")
    return name


def show_key(key: str) -> str:
    """Return a repository or folder for people."""
    return f"the folder '{key.removeprefix('folder:')}'" if key.startswith("folder:") else key


def _free_name(key: str, taken: dict[str, Project]) -> str:
    """Return the name of the repository, with the owner before it or a number after it if it is taken."""
    parts = [_safe_name(part) for part in key.removeprefix("folder:").removeprefix("file:").split("/") if part]
    short, long = parts[-1], "-".join(parts[-2:])
    candidates = [short, long, *(f"{long}-{number}" for number in range(2, 1000))]
    return next(name for name in candidates if name not in taken and name.lower() not in RESERVED)


def _safe_name(text: str) -> str:
    plain = "".join(char if char.isascii() and (char.isalnum() or char in "-_.") else "-" for char in text)
    return plain.strip(".-_")[:60] or "project"


def _format_properties(project: Project) -> str:
    import json

    lines = []
    for key in project.keys:
        kind = "folder" if key.startswith("folder:") else "remote"
        # JSON quotes anything that a name may contain, and is valid YAML.
        lines.append(f"{kind}: {json.dumps(key.removeprefix('folder:'), ensure_ascii=False)}")
    return "\n".join(["---", *lines, "---", ""])

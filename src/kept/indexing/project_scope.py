"""Conversations and notes by project: what a search in one project may find."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kept.errors import NoteNotFound, UsageError
from kept.git_remote import normalise_remote, repository_keys
from kept.listings import NoteLinks
from kept.records import ProjectScope, SearchResult, project_of_path
from kept.sessions.transcript_paths import is_transcript_citation
from kept.workspace.projects import choose_project, get_project, list_projects
from kept.workspace.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kept.config import Config


def transcripts_by_project(config: Config, workspace: Workspace) -> dict[str, str]:
    """Return the project of each conversation that was held in one, by its citation.

    A conversation of a coding agent has the folder that it was held in, and the repository that this folder was a clone
    of when the conversation was imported.
    """
    projects = list_projects(workspace)
    if not any(project.keys for project in projects) or not os.path.isdir(config.paths.sessions):
        return {}
    from kept.sessions.store import SessionStore

    folders: dict[tuple[str, str], str | None] = {}
    by_citation: dict[str, str] = {}
    with SessionStore(config) as sessions:
        for record in sessions.recent():
            place = (_text(record.metadata, "cwd"), find_recorded_remote(record.metadata) or "")
            if place not in folders:
                folders[place] = choose_project(projects, _keys(*place))
            if name := folders[place]:
                by_citation[record.citation] = name
    return by_citation


def _keys(folder: str, remote: str) -> list[str]:
    return [*([remote] if remote else []), *(repository_keys(folder) if os.path.isabs(folder) else ())]


def find_recorded_remote(metadata: Mapping[str, Any]) -> str | None:
    """Return the repository that a conversation names, or None."""
    git = metadata.get("git")
    url = _text(metadata, "remote") or (_text(git, "repository_url") if isinstance(git, dict) else "")
    return normalise_remote(url) if url else None


def _text(metadata: Mapping[str, Any], name: str) -> str:
    value = metadata.get(name)
    return value if isinstance(value, str) else ""


def hides(scope: ProjectScope, path: str) -> bool:
    """Return whether a cited note or conversation belongs to another project."""
    return path in scope.hidden_transcripts or project_of_path(path) not in (None, scope.name)


class ProjectView:
    """The projects of a workspace, as a memory sees them. One that is bound to a project sees no other."""

    def __init__(self, config: Config, workspace: Workspace, bound_to: str | None) -> None:
        self.config = config
        self.workspace = workspace
        self.bound_to = bound_to

    def choose(self, project: str | None, *, to: str = "") -> str | None:
        """Return the project to write to, or None for the shared notes. ``to`` is where in it, perhaps a path."""
        self._require_own(project)
        if to and self.bound_to:
            self.require_visible(to)
        if project == "none":
            return None
        return get_project(self.workspace, project) if project else self.bound_to

    def scope(self, project: str | None = None) -> ProjectScope | None:
        """Return the scope of a search in a project, or of what is shared ('none'). None for everything ('all')."""
        self._require_own(project)
        if project == "all":
            return None
        name = "" if project == "none" else get_project(self.workspace, project) if project else self.bound_to or ""
        transcripts = transcripts_by_project(self.config, self.workspace)
        return ProjectScope(
            name,
            own_transcripts=frozenset(path for path, owner in transcripts.items() if owner == name),
            hidden_transcripts=frozenset(path for path, owner in transcripts.items() if owner != name),
        )

    def _require_own(self, project: str | None) -> None:
        if self.bound_to and project not in (None, "none", self.bound_to):
            raise UsageError(
                f"This memory is for the project '{self.bound_to}' only.",
                hint="Leave out the project, or give 'none' for what is shared.",
            )

    def require_visible(self, path: str) -> None:
        """Raise NoteNotFound if a path that a caller named is in another project."""
        if "\0" in path:
            return  # refused by whoever opens it
        if is_transcript_citation(path):
            scope = self.scope()
            is_hidden = scope is not None and path in scope.hidden_transcripts
        else:
            cited = self.workspace.cite(os.path.normpath(os.path.join(self.workspace.root, path)))
            is_hidden = project_of_path(cited) not in (None, self.bound_to)
        if is_hidden:
            raise NoteNotFound(f"{path}: there is no such note.")

    def visible_links(self, links: NoteLinks) -> NoteLinks:
        """Return the links of a note without those from notes of other projects; those to them are broken."""
        if not self.bound_to:
            return links
        self.require_visible(links.path)
        outgoing = (replace(link, resolved=None) if self.is_hidden(link.resolved) else link for link in links.outgoing)
        incoming = (link for link in links.incoming if not self.is_hidden(link.path))
        return replace(links, outgoing=tuple(outgoing), incoming=tuple(incoming))

    def is_hidden(self, path: str | None) -> bool:
        """Return whether a note is in another project than the one that the memory is bound to."""
        return bool(self.bound_to) and path is not None and project_of_path(path) not in (None, self.bound_to)


def bound_scope(config: Config, workspace: Workspace, bound_to: str | None) -> ProjectScope | None:
    """Return the scope of a memory that is bound to a project, or None if it is not."""
    return ProjectView(config, workspace, bound_to).scope() if bound_to else None


def name_projects(result: SearchResult, config: Config, workspace: Workspace) -> SearchResult:
    """Return a result in which the hits from conversations have their project."""
    if all(hit.source == "memory" for hit in result.hits):
        return result
    transcripts = transcripts_by_project(config, workspace)
    hits = tuple(replace(hit, project=hit.project or transcripts.get(hit.path)) for hit in result.hits)
    return replace(result, hits=hits)

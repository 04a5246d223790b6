"""View of a memory: notes and conversations of its project, and of the person or group that it is for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kept.base.git_remote import normalise_remote, repository_keys
from kept.base.limits import as_dict, text_or_empty
from kept.base.listings import NoteLinks
from kept.base.records import Filter
from kept.base.values import frozen
from kept.base.visibility import (
    PRIVATE_FOLDER,
    PROJECTS_FOLDER,
    ProjectScope,
    Viewer,
    private_folder_of,
    project_of_path,
)
from kept.errors import KeptError, NoteNotFound, PathRefused, SessionNotFound, UsageError
from kept.notes.note_writer import Addition
from kept.notes.projects import choose_project, get_project, list_projects
from kept.notes.replacement import FactReference
from kept.notes.workspace import Workspace, show_path
from kept.sessions.spoken import read_key
from kept.sessions.transcript import open_transcripts
from kept.sessions.transcript_paths import cite_transcript, is_transcript_citation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kept.base.reports import Status
    from kept.config import Config
    from kept.search.service import IndexService


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
            place = (text_or_empty(record.metadata.get("cwd")), find_recorded_remote(record.metadata) or "")
            if place not in folders:
                folders[place] = choose_project(projects, _keys(*place))
            if name := folders[place]:
                by_citation[record.citation] = name
    return by_citation


def _keys(folder: str, remote: str) -> list[str]:
    return [*([remote] if remote else []), *(repository_keys(folder) if os.path.isabs(folder) else ())]


def find_recorded_remote(metadata: Mapping[str, Any]) -> str | None:
    """Return the repository that a conversation names, or None."""
    git = as_dict(metadata.get("git"))
    url = text_or_empty(metadata.get("remote")) or text_or_empty(git.get("repository_url"))
    return normalise_remote(url) if url else None


@frozen
class MemoryView:
    """Notes and conversations as a memory sees them. One that is bound to a project sees no other project, and one that
    is for a person or a group sees nothing private of others."""

    config: Config
    workspace: Workspace
    bound_to: str | None = None
    viewer: Viewer | None = None

    @property
    def is_bound(self) -> bool:
        """True if something may be hidden."""
        return self.bound_to is not None or self.viewer is not None

    @property
    def folder(self) -> str:
        """Return the folder of the notes of the person or of the project, empty for all notes."""
        if self.viewer is not None and not self.viewer.writes_shared:
            return f"{PRIVATE_FOLDER}/{self.viewer.folder}"
        return f"{PROJECTS_FOLDER}/{self.bound_to}" if self.bound_to else ""

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

    def filter(self, project: str | None = None) -> Filter:
        """Return the filter of a project, or of the one that the memory is bound to, and of the viewer."""
        return Filter(scope=self.scope(project) if project or self.bound_to else None, viewer=self.viewer)

    def make_private(self, addition: Addition) -> Addition:
        """Return an addition for the folder of the viewer. Raise PathRefused if it names a note that others read, or
        would read as soon as there are any."""
        viewer = self.viewer
        if viewer is None or viewer.writes_shared:
            return addition
        named = addition.to or ""
        if named.lower() == "memory.md":
            named, addition = "memory", replace(addition, to="memory")
        paths = [] if named in ("", "daily", "memory") or "/" not in named.replace(os.sep, "/") else [named]
        if addition.replaces is not None:
            paths.append(FactReference.parse(addition.replaces).path)
        for path in paths:
            cited = self.workspace.cite(os.path.normpath(os.path.join(self.workspace.root, path)))
            if private_folder_of(cited) is None or self.is_hidden(cited):
                raise PathRefused(
                    f"{show_path(path)}: not a note of this conversation, which is private.",
                    hint="Write to 'daily', to 'memory' or to a name without a folder. The person can /share a text.",
                )
        return replace(addition, private=viewer.folder)

    def _require_own(self, project: str | None) -> None:
        if self.bound_to and project not in (None, "none", self.bound_to):
            raise UsageError(
                f"This memory is for the project '{self.bound_to}' only.",
                hint="Leave out the project, or give 'none' for what is shared.",
            )

    def require_visible(self, path: str) -> None:
        """Raise NoteNotFound or SessionNotFound, as for a path that does not exist, if a path that a caller named is in
        another project or somebody else's."""
        if not self.is_bound or "\0" in path:
            return  # a text that is not a path is refused when it is opened
        if is_transcript_citation(path):
            if self._hides_transcript(path):
                raise SessionNotFound(f"{path}: there is no such transcript.")
        elif self.is_hidden(cited := self.workspace.cite(os.path.normpath(os.path.join(self.workspace.root, path)))):
            raise NoteNotFound(f"{show_path(cited)}: there is no such note.")

    def _hides_transcript(self, citation: str) -> bool:
        if self.viewer is not None:
            try:
                key = read_key(open_transcripts(self.config), citation)
            except SessionNotFound:
                key = None
            if not self.viewer.sees_key(key):
                return True
        scope = self.scope() if self.bound_to else None
        if scope is None:
            return False
        return cite_transcript(citation) in scope.hidden_transcripts

    def visible_links(self, links: NoteLinks) -> NoteLinks:
        """Return the links of a note without those from notes that are hidden; those to them are broken."""
        self.require_visible(links.path)
        outgoing = (replace(link, resolved=None) if self.is_hidden(link.resolved) else link for link in links.outgoing)
        incoming = (link for link in links.incoming if not self.is_hidden(link.path))
        return replace(links, outgoing=tuple(outgoing), incoming=tuple(incoming))

    def is_hidden(self, path: str | None) -> bool:
        """Return whether a note is in another project, or somebody else's."""
        if path is None:
            return False
        if self.viewer is not None and not self.viewer.sees_note(path):
            return True
        return bool(self.bound_to) and project_of_path(path) not in (None, self.bound_to)

    def sees(self, path: str) -> bool:
        """Return whether a cited note or conversation is visible."""
        return not (self._hides_transcript(path) if is_transcript_citation(path) else self.is_hidden(path))


HIDDEN_PROBLEM = "Part of the memory could not be read or indexed. 'kept doctor' on the machine says more."
_NAMES_A_FILE = r"sessions/|\.jsonl|memory/private|(?:^|[\s'\"(])[/~]"


def visible_status(status: Status, visible: Filter, service: IndexService) -> Status:
    """Return a status as a viewer may see it: of what they see, and without the paths of others."""
    viewer = visible.viewer
    if viewer is None:
        return status
    try:
        with service.inspecting() as (index, _), index.reading():
            counts = index.live.count_by_source(visible)
    except KeptError:
        counts = {}
    problems = (f"{problem.path}: {problem.reason}" for problem in status.problems)
    return replace(
        status,
        files=sum(count["files"] for count in counts.values()),
        chunks=sum(count["chunks"] for count in counts.values()),
        source_counts=counts,
        problems=(),
        degraded=show_problems(viewer, [*status.degraded, *problems]),
    )


def show_problems(viewer: Viewer | None, problems: Iterable[str]) -> tuple[str, ...]:
    """Return problems for a viewer. One that names a file of others says only that there is one."""
    if viewer is None:
        return tuple(problems)
    shown = (HIDDEN_PROBLEM if re.search(_NAMES_A_FILE, problem) else problem for problem in problems)
    return tuple(dict.fromkeys(shown))

"""What a memory finds: its searches, and the notes and conversations that its project, person or group may see."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kept.base.clock import Clock
from kept.base.limits import as_dict, require_number, require_text, text_or_empty
from kept.base.records import SOURCES, Filter, Hit, Progress, SearchResult, SeenTail
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
from kept.notes.workspace import Workspace, has_projects, show_path
from kept.sessions.transcript_paths import cite_transcript, is_transcript_citation

if TYPE_CHECKING:
    from kept.base.reports import Status
    from kept.config import Config
    from kept.notes.note_writer import Addition
    from kept.search.query_dates import When
    from kept.search.service import IndexService

MOST_RESULTS = 200
_SPARE_HITS = 3
"""Hits to ask for in addition if some may be left out."""
_LISTED = 20
"""Entries in the list of a time, unless the caller asks for another number."""
HIDDEN_PROBLEM = "Part of the memory could not be read or indexed. 'kept doctor' on the machine says more."
_NAMES_A_FILE = r"sessions/|\.jsonl|memory/private|(?:^|[\s'\"(])[/~]"


@frozen
class SearchRequest:
    """What a caller asks a memory for. `Memory.search` describes each field."""

    query: str = ""
    max_results: int | None = None
    min_score: float | None = None
    source: str | None = None
    path: str | os.PathLike[str] | None = None
    session: str | None = None
    session_key: str | None = None
    channel: str | None = None
    since: When | None = None
    until: When | None = None
    as_of: When | None = None
    tags: str | Iterable[str] = ()
    project: str | None = None
    seen: SeenTail | None = None


@frozen
class MemoryView:
    """Notes and conversations as a memory sees them. One that is bound to a project sees no other project, and one that
    is for a person or a group sees nothing private of others."""

    config: Config
    workspace: Workspace
    clock: Clock
    project: str | None = None
    viewer: Viewer | None = None

    @property
    def is_bound(self) -> bool:
        """True if something may be hidden."""
        return self.project is not None or self.viewer is not None

    @property
    def folder(self) -> str:
        """Return the folder of the notes of the person or of the project, empty for all notes."""
        if self.viewer is not None and not self.viewer.writes_shared:
            return f"{PRIVATE_FOLDER}/{self.viewer.folder}"
        return f"{PROJECTS_FOLDER}/{self.project}" if self.project else ""

    # searching

    def search(self, service: IndexService, request: SearchRequest, progress: Progress | None = None) -> SearchResult:
        """Return the hits, or the list of a time if the query is only a time."""
        from kept.search.query_dates import read_time_query

        service.require_usable()
        require_text(query=request.query)
        require_number("max_results", request.max_results, 1, MOST_RESULTS, whole=True)
        require_number("min_score", request.min_score, 0, 1)
        filters, now = self.make_filter(request), self.clock.now()
        time_query = read_time_query(request.query, now, filters)
        if time_query is None:
            result = self._ask(service, request, filters, progress)
        else:
            from kept.search.browse import list_time

            result = list_time(
                service, filters, time_query, max_results=request.max_results or _LISTED, progress=progress
            )
            if not result.hits and time_query.may_be_mentioned(now):
                # Nothing is from that date, but other notes may mention it. If none is likely to, the empty list is the
                # answer: it tells how the time was read.
                mentions = self._ask(service, request, filters, progress)
                result = result if mentions.answered == "no" else mentions
        degraded, hits = result.degraded, result.hits
        if request.seen and result.period:
            hits = _leave_out(result, request.seen, request.query)
        if any(hit.source == "sessions" for hit in hits) and has_projects(self.workspace):
            owners = self._transcripts_by_project()
            hits = tuple(replace(hit, project=hit.project or owners.get(hit.path)) for hit in hits)
        if not hits and (filters.path or filters.channel or filters.tags):
            from kept.search.browse import explain_no_hits

            degraded = tuple(dict.fromkeys([*degraded, *explain_no_hits(service, filters)]))
        if self.viewer:
            degraded = show_problems(self.viewer, degraded)
        return replace(result, hits=hits, degraded=degraded)

    def _ask(
        self, service: IndexService, request: SearchRequest, filters: Filter, progress: Progress | None
    ) -> SearchResult:
        """Return the hits of the index, or those of qmd if the settings choose it."""
        from kept.search.query import IndexQuery, parse_query

        settings, seen = service.settings.query, request.seen
        count = request.max_results or settings.max_results
        asked = replace(
            settings,
            max_results=count + (_SPARE_HITS if seen else 0),
            min_score=settings.min_score if request.min_score is None else float(request.min_score),
        )
        query = IndexQuery(parse_query(request.query), asked, filters)
        search_index = partial(service.search, growing=seen.path if seen else None, progress=progress)
        if service.settings.backend == "qmd":
            scan = service.scan if service.settings.sync.on_search else None
            result = service.qmd.search(query, search_index, scan, min_score=request.min_score or 0.0)
        else:
            result = search_index(query)
        return replace(result, hits=_leave_out(result, seen, request.query)[:count]) if seen else result

    def make_filter(self, request: SearchRequest) -> Filter:
        """Return the filter for the limits that a request names."""
        path = os.fspath(request.path) if request.path else None
        require_text(source=request.source, path=path, channel=request.channel, session_key=request.session_key)
        if request.source and request.source not in SOURCES:
            raise UsageError(
                f"There is no source '{request.source}'.", hint="Use 'memory' (notes) or 'sessions' (conversations)."
            )
        since_ms = until_ms = as_of_ms = session_key = None
        if not (request.since is request.until is request.as_of is None):
            from kept.search.query_dates import find_when, parse_range

            now = self.clock.now()
            since_ms, until_ms = parse_range(request.since, request.until, now=now)
            as_of_ms = find_when(request.as_of, now=now, end=True)
        if request.session_key:
            from kept.sessions.session_key import parse_key

            session_key = str(parse_key(request.session_key, agent_id=self.config.agent_id))
        sources = tuple(self.config.memory_search.sources)
        filters = Filter(
            # With both sources, which is usual, a search need not look at the source of each chunk.
            sources=(request.source,) if request.source else sources if len(sources) == 1 else (),
            path=path,
            since_ms=since_ms,
            until_ms=until_ms,
            as_of_ms=as_of_ms,
            session_key=session_key,
            channel=request.channel or None,
            tags=_tag_keys(request.tags) if request.tags else (),
            scope=self._scope(request.project),
            viewer=self.viewer,
        )
        return filters if request.session is None else self._within_session(filters, request.session)

    def _within_session(self, filters: Filter, reference: str) -> Filter:
        """Return the filter for one session, or for all sessions of a conversation if the reference is its key."""
        from kept.sessions.store import SessionStore

        if not os.path.isdir(self.config.paths.sessions):
            raise SessionNotFound(f"There is no session '{reference}'.")
        with SessionStore(self.config, clock=self.clock) as sessions:
            record = sessions.get(reference, self.viewer)
        if ":" in reference and reference != record.id:
            return replace(filters, session_key=record.key)
        return replace(filters, transcript=record.citation)

    # projects and private notes

    def filter(self, project: str | None = None) -> Filter:
        """Return the filter of a project, or of the one that the memory is bound to, and of the viewer."""
        return Filter(scope=self._scope(project), viewer=self.viewer)

    def _scope(self, project: str | None = None) -> ProjectScope | None:
        """Return the scope of a search in a project, or of what is shared ('none'). None for everything ('all')."""
        if not (project or self.project):
            return None
        self._require_own(project)
        if project == "all":
            return None
        name = self._find_project(project)
        transcripts = self._transcripts_by_project()
        return ProjectScope(
            name,
            own_transcripts=frozenset(path for path, owner in transcripts.items() if owner == name),
            hidden_transcripts=frozenset(path for path, owner in transcripts.items() if owner != name),
        )

    def _find_project(self, project: str | None) -> str:
        """Return the name of a project, or of the one that the memory is bound to. Empty for what is shared."""
        from kept.notes.projects import get_project

        if project == "none":
            return ""
        return get_project(self.workspace, project) if project else self.project or ""

    def _require_own(self, project: str | None) -> None:
        if self.project and project not in (None, "none", self.project):
            raise UsageError(
                f"This memory is for the project '{self.project}' only.",
                hint="Leave out the project, or give 'none' for what is shared.",
            )

    def _transcripts_by_project(self) -> dict[str, str]:
        """Return the project of each conversation that was held in one, by its citation.

        A conversation of a coding agent has the folder that it was held in, and the repository that this folder was a
        clone of when the conversation was imported.
        """
        from kept.base.git_remote import repository_keys
        from kept.notes.projects import choose_project, list_projects

        projects = list_projects(self.workspace)
        if not any(project.keys for project in projects) or not os.path.isdir(self.config.paths.sessions):
            return {}
        from kept.sessions.store import SessionStore

        owners: dict[tuple[str, str], str | None] = {}
        by_citation: dict[str, str] = {}
        with SessionStore(self.config) as sessions:
            for record in sessions.recent():
                folder, remote = text_or_empty(record.metadata.get("cwd")), _recorded_remote(record.metadata)
                if (folder, remote) not in owners:
                    keys = repository_keys(folder) if os.path.isabs(folder) else ()
                    owners[folder, remote] = choose_project(projects, [*([remote] if remote else []), *keys])
                if name := owners[folder, remote]:
                    by_citation[record.citation] = name
        return by_citation

    def place(self, addition: Addition) -> Addition:
        """Return an addition for the project and the folder of the viewer. Raise NoteNotFound for a hidden note, and
        PathRefused for one that others read, or would read as soon as there are any."""
        from kept.notes.replacement import FactReference

        self._require_own(addition.project)
        if self.project and addition.to:
            self.require_visible(addition.to)
        replaced = None if addition.replaces is None else FactReference.parse(addition.replaces).path
        if replaced is not None:
            self.require_visible(replaced)
        addition = replace(addition, project=self._find_project(addition.project) or None)
        viewer, named = self.viewer, addition.to or ""
        if viewer is None or viewer.writes_shared:
            return addition
        if named.lower() == "memory.md":
            named, addition = "memory", replace(addition, to="memory")
        for path in (named if "/" in named.replace(os.sep, "/") else None, replaced):
            if path is not None and (private_folder_of(cited := self._cite(path)) is None or not self.sees(cited)):
                raise PathRefused(
                    f"{show_path(path)}: not a note of this conversation, which is private.",
                    hint="Write to 'daily', to 'memory' or to a name without a folder. The person can /share a text.",
                )
        return replace(addition, private=viewer.folder)

    # what is hidden

    def sees(self, path: str) -> bool:
        """Return whether a cited note or conversation is neither in another project nor somebody else's."""
        if is_transcript_citation(path):
            return self._sees_transcript(path)
        if self.project and project_of_path(path) not in (None, self.project):
            return False
        return self.viewer is None or self.viewer.sees_note(path)

    def _sees_transcript(self, citation: str) -> bool:
        if self.viewer is not None:
            from kept.sessions.spoken import read_key
            from kept.sessions.transcript import open_transcripts

            try:
                key = read_key(open_transcripts(self.config), citation)
            except SessionNotFound:
                key = None
            if not self.viewer.sees_key(key):
                return False
        scope = self._scope()
        return scope is None or cite_transcript(citation) not in scope.hidden_transcripts

    def require_visible(self, path: str) -> None:
        """Raise NoteNotFound or SessionNotFound, as for a path that does not exist, if a path that a caller named is in
        another project or somebody else's."""
        if not self.is_bound or "\0" in path:
            return  # a text that is not a path is refused when it is opened
        if is_transcript_citation(path):
            if not self.sees(path):
                raise SessionNotFound(f"{path}: there is no such transcript.")
        elif not self.sees(cited := self._cite(path)):
            raise NoteNotFound(f"{show_path(cited)}: there is no such note.")

    def _cite(self, path: str) -> str:
        return self.workspace.cite(os.path.normpath(os.path.join(self.workspace.root, path)))

    def visible_status(self, service: IndexService) -> Status:
        """Return the state of the index as the viewer may see it: of what they see, without the paths of others."""
        status = service.status()
        if self.viewer is None:
            return status
        try:
            with service.inspecting() as (index, _), index.reading():
                counts = index.live.count_by_source(self.filter())
        except KeptError:
            counts = {}
        problems = (f"{problem.path}: {problem.reason}" for problem in status.problems)
        return replace(
            status,
            files=sum(count["files"] for count in counts.values()),
            chunks=sum(count["chunks"] for count in counts.values()),
            source_counts=counts,
            problems=(),
            degraded=show_problems(self.viewer, [*status.degraded, *problems]),
        )


def show_problems(viewer: Viewer | None, problems: Iterable[str]) -> tuple[str, ...]:
    """Return problems for a viewer. One that names a file of others says only that there is one."""
    if viewer is None:
        return tuple(problems)
    shown = (HIDDEN_PROBLEM if re.search(_NAMES_A_FILE, problem) else problem for problem in problems)
    return tuple(dict.fromkeys(shown))


def _recorded_remote(metadata: Mapping[str, Any]) -> str:
    """Return the repository that a conversation names, or nothing."""
    from kept.base.git_remote import normalise_remote

    git = as_dict(metadata.get("git"))
    url = text_or_empty(metadata.get("remote")) or text_or_empty(git.get("repository_url"))
    return normalise_remote(url) or "" if url else ""


def _leave_out(result: SearchResult, seen: SeenTail, query: str) -> tuple[Hit, ...]:
    """Return the hits without what the caller knows, and without messages that tell an agent nothing: questions, and
    those with nothing but the words of the query. An earlier greeting does not answer a greeting."""
    from kept.search.repetitions import tells_nothing

    hits = (hit for hit in result.hits if not seen.has(hit))
    return tuple(hit for hit in hits if hit.source != "sessions" or hit.listed or not tells_nothing(hit.snippet, query))


def _tag_keys(tags: str | Iterable[str]) -> tuple[str, ...]:
    from kept.base.words.segment import tag_key

    names = [tags] if isinstance(tags, str) else list(tags)
    for name in names:
        require_text(tag=name)
        if not tag_key(name):
            raise UsageError(f"'{name}' is not a tag.", hint="Write it as work or area/home, with or without '#'.")
    return tuple(dict.fromkeys(map(tag_key, names)))

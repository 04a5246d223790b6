"""Memory: the notes of a workspace and the index that recalls them, as one object."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, get_args

from kept.clock import Clock, SystemClock
from kept.config import Config, QuerySettings, load_config
from kept.config.schema import BuiltInProvider
from kept.errors import UsageError, WorkspaceMissing
from kept.records import Filter, Passage, Preview, Progress, SearchResult, Status, SyncReport, Written
from kept.text import is_utf8
from kept.workspace.workspace import Workspace

if TYPE_CHECKING:
    from kept.backends.fallback import QmdWithFallback
    from kept.embedding.base import Embedder
    from kept.indexing.index_handle import IndexLimits
    from kept.indexing.service import IndexService
    from kept.search.date_filter import When


class Memory:
    """Memory of one agent: the notes of a workspace, and the index that recalls them.

    >>> with Memory.open(workspace="~/notes") as memory:
    ...     memory.add("The staging database moved to port 5433.")
    ...     for hit in memory.search("which port is staging on?"):
    ...         print(hit.citation, hit.snippet)

    Safe to share between threads, and between processes that use the same workspace. Opening a memory is cheap: the
    index and the embedder are opened, and their modules imported, when they are first used.
    """

    def __init__(
        self,
        config: Config,
        *,
        embedder: Embedder | None = None,
        clock: Clock | None = None,
        limits: IndexLimits | None = None,
    ) -> None:
        self.config = config
        self.settings = config.memory_search
        self.workspace = Workspace.at(config.workspace, self.settings.extra_paths)
        self.clock = clock or SystemClock()
        self._own_embedder = embedder
        self._limits = limits
        self._qmd = self._make_qmd() if self.settings.backend == "qmd" else None
        # A misspelt provider is an error from the start. Only providers of other packages have to be loaded to know.
        if not {self.settings.provider, self.settings.fallback} <= set(get_args(BuiltInProvider)):
            self.index_service.require_known_provider()

    @classmethod
    def open(
        cls,
        workspace: str | os.PathLike[str] | None = None,
        *,
        home: str | os.PathLike[str] | None = None,
        agent: str | None = None,
        config: str | os.PathLike[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        embedder: Embedder | None = None,
        clock: Clock | None = None,
        create: bool = False,
    ) -> Memory:
        """Open the memory of an agent.

        ``settings`` overrides single settings by their dotted name, such as ``{"memory_search.provider": "none"}``.
        ``embedder`` replaces the provider that the settings name. ``create`` creates a missing workspace.
        """
        loaded = load_config(
            home=os.fspath(home) if home else None,
            workspace=os.fspath(workspace) if workspace else None,
            agent=agent,
            config_file=os.fspath(config) if config else None,
            settings=settings,
            trust_workspace=workspace is not None,
        )
        if create:
            Workspace.at(loaded.config.workspace).make()
        if not os.path.isdir(loaded.config.workspace):
            raise WorkspaceMissing(f"There is no workspace at {loaded.config.workspace}.")
        return cls(loaded.config, embedder=embedder, clock=clock)

    def __enter__(self) -> Memory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        service: IndexService | None = vars(self).get("_service")
        if service is not None:
            service.close()

    # notes

    def add(self, text: str, *, to: str = "daily", by_tool: bool = False) -> Written:
        """Append a text to today's log, to long-term memory (``to="memory"``) or to a note by its path.

        The text is on disk when this returns, and the next search finds it. Set ``by_tool`` if a model chose the
        text: then only MEMORY.md and notes below memory/ can be written, never files of the system prompt.
        """
        from kept.workspace.notes import add_note

        max_bytes = self.settings.max_file_bytes
        return add_note(self.workspace, text, to=to, clock=self.clock, max_bytes=max_bytes, by_tool=by_tool)

    def read(self, path: str, *, start: int = 1, lines: int | None = None) -> Passage:
        """Return lines of a note, or of a conversation as a search cites it (``sessions/….jsonl``)."""
        from kept.sessions.transcript_paths import is_transcript_citation

        if is_transcript_citation(path):
            from kept.sessions.spoken import read_transcript

            return read_transcript(self.config.paths.sessions, path, start=start, lines=lines)
        from kept.workspace.notes import read_passage

        return read_passage(self.workspace, path, start=start, lines=lines, max_bytes=self.settings.max_file_bytes)

    # the index

    @property
    def index_service(self) -> IndexService:
        """Index and everything that maintains it. For Kept's own packages: its methods may change."""
        service: IndexService | None = vars(self).get("_service")
        # Two threads may get here at once: setdefault is atomic, and the second service has opened nothing yet. A lock
        # could be held during a fork.
        return service or vars(self).setdefault("_service", self._make_service())

    def search(
        self,
        query: str,
        *,
        max_results: int | None = None,
        min_score: float | None = None,
        source: str | None = None,
        path: str | None = None,
        session_key: str | None = None,
        channel: str | None = None,
        since: When | None = None,
        until: When | None = None,
        progress: Progress | None = None,
    ) -> SearchResult:
        """Return passages of notes and conversations that answer a query, best first.

        There are fewer than ``max_results``, or none, if little matches.

        ``session_key`` is full or short (``telegram:5054``). With it or ``channel``, only conversations are searched.
        """
        from kept.search.date_filter import parse_when
        from kept.search.query import parse_query

        _require_text(source=source, path=path, channel=channel)
        service = self.index_service
        service.require_usable()
        parsed = parse_query(query)
        now, sources = self.clock.now(), tuple(self.settings.sources)
        filters = Filter(
            sources=(source,) if source else sources if len(sources) == 1 else (),
            path=path or None,
            since_ms=parse_when(since, now=now) if since else None,
            until_ms=parse_when(until, now=now, end=True) if until else None,
            session_key=self._full_key(session_key) if session_key else None,
            channel=channel or None,
        )
        settings = self._query_settings(max_results, min_score)
        if self._qmd is None:
            return service.search(parsed, settings, filters, progress=progress)
        from kept.backends.fallback import BackendQuery

        return self._qmd.search(
            BackendQuery(query, settings, filters, min_score, "sessions" in self.settings.sources),
            (lambda: service.scan().files) if self.settings.sync.on_search else None,
            lambda narrowed: service.search(parsed, settings, narrowed, progress=progress),
        )

    def sync(self, *, force: bool = False, progress: Progress | None = None) -> SyncReport:
        """Bring the index up to date with notes and conversations. ``force`` rebuilds it."""
        return self.index_service.sync(force=force, progress=progress)

    def preview(self, *, force: bool = False) -> Preview:
        """Return the work and the cost of a sync. Changes nothing and calls no provider."""
        return self.index_service.preview(force=force)

    def status(self) -> Status:
        """Return the state of the index and its problems. Changes no note and no setting."""
        return self.index_service.status()

    # inside

    def _make_service(self) -> IndexService:
        from kept.indexing.service import IndexService

        return IndexService(
            self.config,
            self.workspace,
            self.clock,
            embedder=self._own_embedder,
            limits=self._limits,
            also_sync=self._qmd.sync if self._qmd else None,
        )

    def _make_qmd(self) -> QmdWithFallback:
        from kept.backends.fallback import QmdWithFallback
        from kept.backends.qmd import QmdBackend

        def read(path: str, start: int, lines: int) -> Passage:
            return self.read(path, start=start, lines=lines)

        qmd = QmdBackend(self.config, self.workspace, read)
        return QmdWithFallback(qmd, self.clock, cooldown_s=self.settings.qmd.cooldown_s)

    def _query_settings(self, max_results: int | None, min_score: float | None) -> QuerySettings:
        settings = self.settings.query
        if max_results is not None:
            settings = replace(settings, max_results=min(200, max(1, max_results)))
        if min_score is not None:
            settings = replace(settings, min_score=min(1.0, max(0.0, min_score)))
        return settings

    def _full_key(self, session_key: str) -> str:
        from kept.sessions.session_key import parse_key

        return str(parse_key(session_key, agent_id=self.config.agent_id))


def _require_text(**filters: str | None) -> None:
    for name, value in filters.items():
        if value is not None and not is_utf8(value):
            raise UsageError(f"The {name} is not valid text, so nothing can match it.", hint="Write it in UTF-8.")

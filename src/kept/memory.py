"""Memory: everything Kept does, as one object."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kept.clock import Clock, SystemClock
from kept.config import Config, QuerySettings, load_config
from kept.embedding.base import Embedder, Identity
from kept.embedding.registry import EmbedderChain, chain_of, choose_chain
from kept.errors import ConfigError, EmbeddingError, KeptError, StoreDamaged, UsageError, WorkspaceMissing
from kept.forking import DatabaseLock, register
from kept.indexing.keeper import IndexService
from kept.indexing.meter import usage_of
from kept.indexing.scan import CITED_FOLDER, is_transcript, is_transcript_path
from kept.indexing.sync import Syncer
from kept.indexing.triggers import should_sync
from kept.ledger import open_model_ledger, tokens_of_day
from kept.limits import is_storable
from kept.records import (
    Dropped,
    Filter,
    Hit,
    Passage,
    Preview,
    Problem,
    Progress,
    SearchResult,
    Status,
    SyncReport,
    Written,
)
from kept.search.date_filter import When, parse_when
from kept.search.pipeline import IndexSearchResult, QueryVector, embed_query, search_index
from kept.search.query import ParsedQuery, parse_query
from kept.store.index import Index
from kept.store.integrity import check_pages_if_quick
from kept.workspace.notes import add_note, read_passage
from kept.workspace.paths import Workspace, is_markdown
from kept.workspace.scan import Scan

if TYPE_CHECKING:
    from kept.backends.fallback import QmdWithFallback
    from kept.embedding.onnx.cross_encoder import CrossEncoder


class Memory:
    """One agent's memory: the notes of a workspace, and the index that recalls them.

    >>> with Memory.open(workspace="~/notes") as memory:
    ...     memory.add("The staging database moved to port 5433.")
    ...     for hit in memory.search("which port is staging on?"):
    ...         print(hit.citation, hit.snippet)

    Safe to share between threads; processes that use the same workspace respect each other.
    """

    def __init__(
        self,
        config: Config,
        *,
        embedder: Embedder | None = None,
        clock: Clock | None = None,
        twin_of: Memory | None = None,
    ) -> None:
        self.config = config
        self.settings = config.memory_search
        self.workspace = Workspace.at(config.workspace, self.settings.extra_paths)
        self.clock = clock or SystemClock()
        self._lock = DatabaseLock()
        self._signals = twin_of is None
        self._given: Embedder | None = embedder if twin_of is None else twin_of._given
        self._keeper = self._make_keeper(None if twin_of is None else twin_of._chain)
        self._judge: CrossEncoder | None = None
        self._first = self._qmd_first() if self.settings.backend == "qmd" else None
        register(self)

    def _make_keeper(self, chain: EmbedderChain | None = None) -> IndexService:
        if chain is None:
            chain = chain_of(self._given) if self._given else choose_chain(self.settings, self.config.keys)
        self._chain: EmbedderChain = chain
        self._without_vectors = tuple(f"{self._instead(chain)}: {problem}" for problem in chain.problems)
        return IndexService(self.config, self.workspace, chain.embedders, self.clock, signals=self._signals)

    def after_fork(self) -> None:
        """In a forked child: a connection, a model's threads and a provider's sockets are the parent's."""
        self._keeper.after_fork()
        self._keeper = self._make_keeper()
        self._judge = None

    def _qmd_first(self) -> QmdWithFallback:
        from kept.backends.fallback import QmdWithFallback
        from kept.backends.qmd import QmdBackend

        def read(path: str, start: int, lines: int) -> Passage:
            return self.read(path, start=start, lines=lines)

        return QmdWithFallback(QmdBackend(self.config, self.workspace, read), cooldown_s=self.settings.qmd.cooldown_s)

    @staticmethod
    def _instead(chain: EmbedderChain) -> str:
        return f"Using {chain.embedders[0].identity.model}" if chain.embedders else "Searching by word only"

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
        """Opens the memory of an agent.

        ``settings`` overrides single settings by their dotted name, such as ``{"memory_search.provider": "none"}``.
        ``embedder`` is used instead of the provider that the settings name. ``create`` makes the workspace where
        there is none.
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
        with self._lock:
            self._keeper.close()

    def twin(self) -> Memory:
        """The same memory with the same embedders, and a connection of its own to the index: for a thread that keeps
        it current, so that a search does not wait until that is done. Whoever makes it closes it."""
        return Memory(self.config, clock=self.clock, twin_of=self)

    # remembering

    def add(self, text: str, *, to: str = "daily", by_tool: bool = False) -> Written:
        """Appends a text to today's log, to long-term memory (``to="memory"``) or to a note by its path.

        It is on disk when this returns, and found by the next search. Set ``by_tool`` where a model chose the text:
        then only MEMORY.md and notes below memory/ can be written, never what stands in a system prompt.
        """
        max_bytes = self.settings.max_file_bytes
        return add_note(self.workspace, text, to=to, clock=self.clock, max_bytes=max_bytes, by_tool=by_tool)

    def read(self, path: str, *, start: int = 1, lines: int | None = None) -> Passage:
        """Lines of a note, or of a conversation as a search cites it (``sessions/….jsonl``)."""
        if is_transcript_path(path):
            from kept.indexing.conversation import read_conversation

            return read_conversation(self._keeper.sessions_folder, path, start=start, lines=lines)
        return read_passage(self.workspace, path, start=start, lines=lines, max_bytes=self.settings.max_file_bytes)

    # recalling

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
        """What notes and conversations say about something, best first; fewer than asked for, or none, where little
        fits. ``session_key`` is in full or short (``telegram:5054``); with it or ``channel``, only conversations are
        searched."""
        self.require_usable()
        parsed = parse_query(query)
        filters = self._filter(source, path, since, until, session_key, channel)
        settings = self._query_settings(max_results, min_score)
        if self._first is not None:
            from kept.backends.fallback import BackendQuery

            backend_query = BackendQuery(query, settings, filters, min_score, "sessions" in self.settings.sources)
            files = (lambda: self.look().files) if self.settings.sync.on_search else None
            return self._first.search(
                backend_query, files, lambda narrowed: self._search_index(parsed, settings, narrowed, progress)
            )
        return self._search_index(parsed, settings, filters, progress)

    def _search_index(
        self, parsed: ParsedQuery, settings: QuerySettings, filters: Filter, progress: Progress | None
    ) -> SearchResult:
        started = time.perf_counter()
        with self._lock:
            state, fresh = self._keeper.healing(lambda: self._keeper.sync_for_search(progress))
            embedder, reason = self._embedder_for_search(settings)
            before = usage_of(embedder)
        # A provider on the network may take its time, for which nobody else should wait.
        vector, trouble = embed_query(embedder, parsed) if embedder else (None, ())
        with self._lock:
            self._keeper.record(before)
            found = self._find(parsed, vector, settings, filters, fresh=fresh)
            notices = self._keeper.take_notices()
            identity = self._identity()
        return SearchResult(
            hits=found.hits,
            degraded=tuple(dict.fromkeys((*notices, *state, *reason, *trouble, *found.degraded))),
            provider=identity.provider if identity else "none",
            model=identity.model if identity else None,
            took_ms=(time.perf_counter() - started) * 1000,
            dropped=found.dropped,
        )

    def _find(
        self, query: ParsedQuery, vector: QueryVector | None, settings: QuerySettings, filters: Filter, *, fresh: bool
    ) -> IndexSearchResult:
        try:
            return self._find_once(query, vector, settings, filters, fresh=fresh)
        except StoreDamaged as damage:

            def find_again() -> IndexSearchResult:
                _, fresh = self._keeper.sync_for_search(None)
                return self._find_once(query, vector, settings, filters, fresh=fresh)

            return self._keeper.after_healing(damage, find_again)

    def _find_once(
        self, query: ParsedQuery, vector: QueryVector | None, settings: QuerySettings, filters: Filter, *, fresh: bool
    ) -> IndexSearchResult:
        if vector and vector.identity != self._keeper.syncer().held_identity():
            vector = None  # rebuilt with another embedder while the query was being embedded
        now_ms = self.clock.time_ns() // 1_000_000
        judge, trouble = self._find_judge()
        found = search_index(self._keeper.index(), vector, query, settings, filters, now_ms=now_ms, reranker=judge)
        found = replace(found, degraded=(*trouble, *found.degraded)) if trouble else found
        return found if fresh else self._without_what_is_gone(found)

    # keeping the index

    def sync(self, *, force: bool = False, progress: Progress | None = None) -> SyncReport:
        """Brings the index up to date with the notes. ``force`` builds it anew."""
        self.require_usable()
        with self._lock:
            report = self._keeper.healing(lambda: self._keeper.sync(force=force, progress=progress))
            notices = self._keeper.take_notices()
        return replace(
            report,
            failures=(*self._without_vectors, *report.failures, *self._sync_first()),
            rebuilt=notices[0] if notices else report.rebuilt,
        )

    def mend_index(self, *, progress: Progress | None = None) -> SyncReport:
        """Examine every table of the index, mend what is damaged, and bring it up to date."""
        self.require_usable()
        with self._lock:
            self._keeper.mend()
        return self.sync(progress=progress)

    def find_unindexed(self, path: str, *, first_line: int, last_line: int) -> tuple[int, ...]:
        """The lines of a conversation that say something and that no search can find yet. Syncs nothing."""
        from kept.indexing.coverage import find_unindexed

        with self._lock:
            index = self._keeper.index()
            with index.reading():
                return find_unindexed(index.live, self._keeper.sessions_folder, path, first_line, last_line)

    def preview(self, *, force: bool = False) -> Preview:
        """What a sync would do and cost. Nothing is changed, and no provider is asked."""
        self.require_usable()
        with self._lock:
            return self._keeper.healing(lambda: self._keeper.syncer().preview(force=force))

    def _sync_first(self) -> tuple[str, ...]:
        """Where another program answers searches, it takes in what changed too."""
        problem = self._first.sync(self.look().files) if self._first is not None else None
        return (problem,) if problem else ()

    # keeping it current in the background: for `kept.live`

    def take_in_changes(self, *, progress: Progress | None = None) -> SyncReport:
        """Brings the index up to date because something changed, and not because somebody asked."""
        self.require_usable()
        with self._lock:
            report = self._keeper.healing(lambda: self._keeper.take_in_changes(progress))
            notices = self._keeper.take_notices()
        return replace(
            report,
            failures=(*report.failures, *self._sync_first()),
            rebuilt=notices[0] if notices else report.rebuilt,
        )

    def look(self) -> Scan:
        """What there is on disk, by names and states."""
        with self._lock:
            return self._keeper.syncer().scan()

    def folders(self) -> tuple[str, ...]:
        """Every folder that the last sync looked into: a change of what is indexed is a change in one of them."""
        with self._lock:
            return self._keeper.folders

    def cite_changed(self, absolute: str) -> str | None:
        """The name under which a file is cited that a sync would look at; None for any other."""
        if os.path.dirname(absolute) == self._keeper.sessions_folder and is_transcript(os.path.basename(absolute)):
            return CITED_FOLDER + os.path.basename(absolute)
        return self.workspace.cite(absolute) if is_markdown(absolute) and self.workspace.is_indexed(absolute) else None

    def was_enough_said(self) -> bool:
        """Whether a conversation has grown by as much as ``memory_search.sync.sessions`` wants for a sync."""
        with self._lock:
            return should_sync(self._keeper.syncer().growths(), self.settings.sync.sessions)

    def status(self) -> Status:
        """What there is, and what is not as it should be. No note and no setting is changed by looking."""
        self.workspace.require()
        identity = self._identity()
        blank = Status(
            workspace=self.workspace.root,
            index_path=self.index_path(),
            agent=self.config.agent_id,
            provider=identity.provider if identity else "none",
            requested_provider=self.settings.provider,
            model=identity.model if identity else None,
            dims=(identity.dims or None) if identity else None,
            cache_max_entries=self.settings.cache.max_entries,
            backend=self.settings.backend,
            batches=self._keeper.batches_under_way(),
            heals=tuple(self._keeper.heals.by_day()),
            degraded=self._without_vectors,
            **self._models_used(),
        )
        with self._lock:
            try:
                return self._filled_twice(blank)
            except StoreDamaged as exc:
                reason = f"{exc.message} The next search, or 'kept index', rebuilds it from the notes."
                return replace(blank, dirty=True, degraded=(*blank.degraded, reason))

    def _filled_twice(self, blank: Status) -> Status:
        """Damage counts when a fresh connection sees it too."""
        try:
            return self._filled(blank)
        except StoreDamaged:
            self._keeper.reopen()
            return self._filled(blank)

    def _models_used(self) -> dict[str, Any]:
        ledger = open_model_ledger(self.config.home, self.config.agent_id, self._keeper.clock)
        lines = tuple(ledger.by_day())
        return {
            "model_spending": lines,
            "model_budget_tokens": self.config.agent.model.daily_budget_tokens,
            "model_tokens_today": tokens_of_day(lines, ledger.today()),
        }

    def _filled(self, blank: Status) -> Status:
        index, syncer = self._keeper.index(), self._keeper.syncer()
        check_pages_if_quick(index)
        scan, rebuild = syncer.scan(), syncer.why_rebuild()
        changed = syncer.count_changed(scan)
        with index.reading():
            counts = index.live.counts()
            cache_entries = index.cache.count()
            warnings = [Problem(path, reason) for path, reason in index.live.note_warnings()]
        pending = counts.chunks - counts.vectors if self._keeper.embedder is not None else 0
        degraded = [*blank.degraded]
        if rebuild:
            degraded.append(f"The index will be rebuilt: {rebuild}.")
        elif pending:
            degraded.append(f"{pending} chunks are found by word, not yet by meaning.")
        return replace(
            blank,
            index_path=index.path,
            files=counts.files,
            chunks=counts.chunks,
            source_counts=counts.by_source,
            dirty=changed > 0 or rebuild is not None,
            changed_files=changed,
            pending=pending,
            index_bytes=index.size_bytes(),
            cache_entries=cache_entries,
            last_sync=index.get_meta("last_sync"),
            spending=tuple(self._keeper.ledger.by_day()),
            degraded=tuple(degraded),
            problems=(*scan.problems, *warnings),
        )

    # looking inside: for the doctor and for tests

    @contextmanager
    def inspecting(self) -> Iterator[tuple[Index, Syncer]]:
        """The index and what keeps it, as they are: nothing is synced or mended."""
        with self._lock:
            yield self._keeper.index(), self._keeper.syncer()

    def index_path(self) -> str:
        return self._keeper.path()

    def embedder(self) -> tuple[tuple[str, ...], Embedder | None]:
        """Why there is no embedder, where there should be one; and the embedder."""
        return self._without_vectors, self._keeper.embedder

    # inside

    def require_usable(self) -> None:
        """Refuses where memory is switched off, or there is no workspace."""
        if not self.settings.enabled:
            raise ConfigError(
                "Memory search is switched off.", hint="Set agents.defaults.memory_search.enabled to true."
            )
        self.workspace.require()

    def _identity(self) -> Identity | None:
        return self._keeper.embedder.identity if self._keeper.embedder else None

    def _query_settings(self, max_results: int | None, min_score: float | None) -> QuerySettings:
        settings = self.settings.query
        if max_results is not None:
            settings = replace(settings, max_results=min(200, max(1, max_results)))
        if min_score is not None:
            settings = replace(settings, min_score=min(1.0, max(0.0, min_score)))
        return settings

    def _filter(
        self,
        source: str | None,
        path: str | None,
        since: When | None,
        until: When | None,
        session_key: str | None,
        channel: str | None,
    ) -> Filter:
        _require_text(source=source, path=path, channel=channel)
        now = self.clock.now()
        enabled = tuple(self.settings.sources)
        return Filter(
            sources=(source,) if source else enabled if len(enabled) == 1 else (),
            path=path or None,
            since_ms=parse_when(since, now=now) if since else None,
            until_ms=parse_when(until, now=now, end=True) if until else None,
            session_key=self._full_key(session_key) if session_key else None,
            channel=channel or None,
        )

    def _full_key(self, session_key: str) -> str:
        from kept.sessions.keys import parse_key

        return str(parse_key(session_key, agent_id=self.config.agent_id))

    def _embedder_for_search(self, settings: QuerySettings) -> tuple[Embedder | None, tuple[str, ...]]:
        embedder = self._keeper.embedder
        if embedder is None or not settings.hybrid.enabled:
            return None, self._without_vectors
        if not self._keeper.syncer().vectors_match():
            model = embedder.identity.model
            return None, (f"Searching by word only: the index does not hold vectors of {model} yet.",)
        return embedder, self._without_vectors

    def _find_judge(self) -> tuple[CrossEncoder | None, tuple[str, ...]]:
        """The model that reranks, or why there is none where there should be one. Kept once it is there."""
        path = self.settings.query.rerank.model_path
        if not path or self._judge:
            return self._judge, ()
        from kept.embedding.onnx.cross_encoder import CrossEncoder

        try:
            self._judge = CrossEncoder(path)
        except EmbeddingError as exc:
            return None, (f"Not reranked: {exc.message}",)
        return self._judge, ()

    def _without_what_is_gone(self, found: IndexSearchResult) -> IndexSearchResult:
        """Where the index may be behind, a hit whose file is gone, or says something else there now, is not shown."""
        kept: list[Hit] = []
        gone: list[Dropped] = []
        for hit in found.hits:
            if self._still_says(hit):
                kept.append(hit)
            else:
                gone.append(Dropped(hit.citation, hit.score, "gone from disk"))
        if not gone:
            return found
        reason = f"{len(gone)} outdated {'hit was' if len(gone) == 1 else 'hits were'} left out."
        return IndexSearchResult(tuple(kept), (*found.dropped, *gone), (*found.degraded, reason))

    def _still_says(self, hit: Hit) -> bool:
        text = hit.snippet.strip("…").strip()
        try:
            if hit.source == "sessions":
                from kept.indexing.conversation import is_still_said

                return is_still_said(self._keeper.sessions_folder, hit.path, hit.start_line, hit.end_line, text)
            passage = self.read(hit.path, start=hit.start_line, lines=hit.end_line - hit.start_line + 1)
        except KeptError:
            return False
        return text in passage.text


def _require_text(**filters: str | None) -> None:
    for name, value in filters.items():
        if value is not None and not is_storable(value):
            raise UsageError(f"The {name} is not valid text, so nothing can match it.", hint="Write it in UTF-8.")

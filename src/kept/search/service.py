"""IndexService: the index of one workspace, opened when needed, kept in step with the files, searched and repaired."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from kept.base.records import Dropped, Hit, Progress, SearchResult
from kept.base.remote_errors import EmbeddingError
from kept.base.reports import Status, SyncReport
from kept.config import Config
from kept.embedding.base import usage_of
from kept.errors import ConfigError, KeptError, LockBusy, StoreDamaged, StoreError, WriteFailed
from kept.index.sync_planner import SyncPlanner
from kept.index.sync_run import META_SYNCED
from kept.index.workspace_index import WorkspaceIndex
from kept.notes.note_writer import read_passage
from kept.notes.scan import Scan
from kept.notes.workspace import Workspace

if TYPE_CHECKING:
    from kept.embedding.onnx import CrossEncoder
    from kept.index.sqlite.index import Index
    from kept.search.candidates import QueryVector
    from kept.search.qmd import QmdBackend
    from kept.search.query import IndexQuery

T = TypeVar("T")


class IndexService(WorkspaceIndex):
    """The index of one agent and workspace, to search and to keep current. Safe to share between threads."""

    _reranker: CrossEncoder | None = None
    _is_fresh = False
    """True if the last sync left the index as new as the files."""

    @cached_property
    def qmd(self) -> QmdBackend:
        """The other program that indexes the same notes. The settings choose it as their backend."""
        from kept.search.qmd import QmdBackend

        return QmdBackend(self.config, self.workspace, self.clock)

    def clone(self) -> IndexService:
        """Return a service of the same index with the same embedders and its own connection.

        It is for a thread that keeps the index current: searches do not wait for its syncs. The caller closes it.
        """
        own, limits = self._own_embedder, self.limits
        clone = IndexService(self.config, self.workspace, self.clock, embedder=own, limits=limits, uses_signal=False)
        with self._lock:
            clone.chain, clone._embedder = self.chain, self.embedder
            clone._settings_ns = self._settings_ns
        return clone

    def _drop_parent(self) -> None:
        super()._drop_parent()
        self._reranker = None

    def require_usable(self) -> None:
        """Raise an error if memory search is switched off or the workspace is missing."""
        if not self.settings.enabled:
            raise ConfigError(
                "Memory search is switched off.", hint="Set agents.defaults.memory_search.enabled to true."
            )
        self.workspace.require()

    @contextmanager
    def inspecting(self) -> Iterator[tuple[Index, SyncPlanner]]:
        """Give the open index and a planner on it, as they are: nothing is synced or repaired. Holds the lock."""
        with self._lock:
            yield self.index(), self.planner()

    def reopen(self) -> None:
        """Close the index; the next use opens it with a fresh connection."""
        with self._lock:
            self._close_index()

    # searching

    def search(
        self, request: IndexQuery, *, growing: str | None = None, progress: Progress | None = None
    ) -> SearchResult:
        """Bring the index up to date, unless the settings say otherwise, and search it. ``growing`` is the path of a
        transcript whose last lines the caller knows: they alone do not start a sync."""
        # Imported here: reading tags or the status needs none of it.
        from kept.search.pipeline import embed_query

        self.require_usable()
        with self._lock:
            warnings = self.repairing(self._sync_for_search, progress, growing)
            started = time.perf_counter()  # the time for the index is not that of the search
            embedder, reasons = self.embedder_for_search(request.settings)
            usage = usage_of(embedder)
        # Outside the lock: a provider on the network may be slow, and other threads need not wait for it.
        vector, problems = embed_query(embedder, request.query) if embedder else (None, ())
        with self._lock:
            self.record_usage(usage)
            result = self.repairing(self._search_index, request, vector, progress)
            degraded = (*self._take_notices(), *warnings, *reasons, *problems, *result.degraded)
        return self.complete_result(replace(result, degraded=degraded), started)

    def complete_result(self, result: SearchResult, started: float) -> SearchResult:
        """Return a result with the embedder in use and the time since ``started``, and each reason once. Unless the
        index is as new as the files, hits that are not in them any more are dropped."""
        if not self._is_fresh:  # an index may lag, but an answer must not quote what is gone
            result = drop_outdated(result, self.workspace, self.config)
        reasons = dict.fromkeys(result.degraded)
        with self._lock:
            embedder = self.embedder
            if not self.settings.sync.on_search and all(hit.grade == "weak" for hit in result.hits):
                age = self.planner().describe_age("searches do not update it. Run 'kept index'.")
                reasons |= {age: None} if age else {}
        return replace(
            result,
            degraded=tuple(reasons),
            provider=embedder.identity.provider if embedder else "none",
            model=embedder.identity.model if embedder else None,
            took_ms=(time.perf_counter() - started) * 1000,
        )

    def read(self, action: Callable[[Index], T], *, progress: Progress | None = None) -> tuple[T, tuple[str, ...]]:
        """Bring the index up to date as a search does, and read from it. Return the value, and what did not work."""

        def read_index() -> T:
            index = self._synced_index()
            with index.reading():
                return action(index)

        self.require_usable()
        with self._lock:
            warnings = self.repairing(self._sync_for_search, progress)
            value = self.repairing(read_index)
            return value, tuple(dict.fromkeys((*self._take_notices(), *warnings)))

    def _synced_index(self) -> Index:
        """Return the index. If another process has replaced a damaged one since the sync, the new one may be empty."""
        while self.index() is not self._synced:
            self._sync_for_search(None)
        return self.index()

    def _sync_for_search(self, progress: Progress | None, growing: str | None = None) -> tuple[str, ...]:
        """Bring the index up to date, unless the settings say otherwise. Return warnings about it."""
        self.retry_writable()
        self.use_embedder_of_index()
        before, index = self._synced, self.index()
        self._synced, self._is_fresh = index, False
        if not self.settings.sync.on_search:
            return ()
        if index.why_read_only:
            why = f"it cannot be written now: {index.why_read_only.message}"
            warning = self.planner().describe_age(why)
            self._is_fresh = not warning
            return (warning,) if warning else ()
        if index is before and self._freshness.is_fresh(growing):
            self._is_fresh = True
            return ()
        if reason := self.planner().why_rebuild(run_settings=self.config.run_settings):
            return (f"The index is used as it is, perhaps without the newest changes: {reason} for this run only.",)
        try:
            # Nothing can be answered from an index that was never filled, such as a new one in place of a damaged one.
            is_filled = index.get_meta(META_SYNCED) is not None
            wait_s = self.limits.search_wait_s if is_filled else self.limits.sync_wait_s
            report = self.run_sync(progress=progress, wait_s=wait_s, in_search=True, growing=growing)
        except LockBusy:
            return ("Another process is indexing: the newest changes may be missing.",)
        except StoreDamaged:
            raise
        except (StoreError, WriteFailed) as exc:
            return (f"The index could not be brought up to date, so the newest changes may be missing: {exc.message}",)
        self._is_fresh = True
        if report.rebuilt:
            self._notices.append(f"The index was rebuilt: {report.rebuilt}.")
        return report.failures

    def _search_index(self, request: IndexQuery, vector: QueryVector | None, progress: Progress | None) -> SearchResult:
        from kept.search.pipeline import search_index

        problems: tuple[str, ...] = ()
        # The answer may be the first to tell that a server has another model now, with vectors of another size.
        if vector and self.planner().size_change():
            self._freshness.in_step = False
            problems = self._sync_for_search(progress)
            if change := self.planner().size_change():
                problems += (f"Searching by word only: {change}. Run 'kept index'.",)
        index, now_ms = self._synced_index(), self.clock.time_ns() // 1_000_000
        if vector and vector.identity != index.stored_identity():
            vector = None  # rebuilt with another embedder while the query was embedded
        if (path := self.settings.query.rerank.model_path) and self._reranker is None:
            from kept.embedding.onnx import CrossEncoder

            try:
                self._reranker = CrossEncoder(path)
            except EmbeddingError as exc:
                problems += (f"Not reranked: {exc.message}",)
        result = search_index(index, request, vector, now_ms=now_ms, reranker=self._reranker)
        return replace(result, degraded=(*problems, *result.degraded))

    # syncing

    def sync(self, *, force: bool = False, progress: Progress | None = None, by_request: bool = True) -> SyncReport:
        """Bring the index up to date. ``force`` rebuilds it.

        Unless someone requests it, neither are the pages of the index checked nor is a failed embedder retried early:
        otherwise both would happen each time a note is saved.
        """
        self.require_usable()
        with self._lock:
            report = self.repairing(self.run_with_embedders, force=force, progress=progress, by_request=by_request)
            notices = self._take_notices(with_settings=False)
            warnings = self.chain.problems if by_request else ()
        problem = self.qmd.sync(self.scan().files) if self.settings.backend == "qmd" else None
        return replace(
            report,
            failures=(*warnings, *report.failures, *([problem] if problem else ())),
            rebuilt=notices[0] if notices else report.rebuilt,
        )

    def repair(self, *, progress: Progress | None = None) -> SyncReport:
        """Check every table of the index, delete the file if it is damaged, and bring the index up to date."""

        def check_tables() -> None:
            index = self.index()
            if problems := index.find_damage():
                raise StoreDamaged(f"{index.path}: the index is damaged ({problems[0]}).")

        self.require_usable()
        with self._lock:
            self.repairing(check_tables)
            self.index().cache.check()
        return self.sync(progress=progress)

    # reading its state

    def status(self) -> Status:
        """Return the state of the memory. Changes nothing: a damaged index is reported, not repaired."""
        from kept.index.status import add_index_status, status_without_index

        self.workspace.require()
        reductions, embedder = self.reductions(), self.embedder
        identity = embedder.identity if embedder else None
        status = status_without_index(
            self.config,
            self.clock,
            identity,
            workspace=self.workspace.root,
            index_path=self.path,
            warnings=(*self.config.notices, *reductions),
        )
        with self._lock:
            self.retry_writable()
            damage = ""
            for _ in range(2):  # damage counts only if a fresh connection sees it too
                try:
                    return add_index_status(status, self.planner(), self.config, self.clock)
                except StoreDamaged as exc:
                    damage = exc.message
                    self._close_index()
        reason = f"{damage} The next search, or 'kept index', rebuilds it from the notes."
        return replace(status, dirty=True, degraded=(*status.degraded, reason))

    def scan(self) -> Scan:
        with self._lock:
            return self.planner().reader.scan()

    def folders(self) -> tuple[str, ...]:
        """Return every folder that the last sync listed. Any change of indexed files is a change in one of them."""
        with self._lock:
            return self._folders

    def find_unindexed(self, path: str, *, first_line: int, last_line: int) -> tuple[int, ...]:
        """Return the lines of a transcript that have text and that no search can find yet. Syncs nothing."""
        from kept.index.transcripts import find_unindexed

        with self._lock:
            index = self.index()
            with index.reading():
                return find_unindexed(index.live, self.config, path, first_line=first_line, last_line=last_line)

    def _take_notices(self, *, with_settings: bool = True) -> tuple[str, ...]:
        """Return what a result should report once: problems of the settings, and events of the index."""
        notices, self._notices = tuple(self._notices), []
        if with_settings:
            notices, self._settings_notices = (*self._settings_notices, *notices), ()
        return notices


def drop_outdated(result: SearchResult, workspace: Workspace, config: Config) -> SearchResult:
    """Drop hits whose file is gone or has another text in these lines: for an index that may lag behind."""
    current: list[Hit] = []
    outdated: list[Dropped] = []
    for hit in result.hits:
        passages = [replace(hit, further=()), *hit.further] if hit.further else [hit]
        valid = [passage for passage in passages if _is_current(passage, workspace, config)]
        stale = (passage for passage in passages if passage not in valid)
        outdated += [Dropped(passage.citation, passage.score, "gone from disk") for passage in stale]
        current += [replace(valid[0], further=tuple(valid[1:]))] if valid else []
    if not outdated:
        return result
    reason = f"{len(outdated)} outdated {'hit was' if len(outdated) == 1 else 'hits were'} left out."
    return replace(
        result, hits=tuple(current), dropped=(*result.dropped, *outdated), degraded=(*result.degraded, reason)
    )


def _is_current(hit: Hit, workspace: Workspace, config: Config) -> bool:
    text = hit.snippet.strip("…").strip()
    try:
        if hit.source == "sessions":
            from kept.sessions.spoken import still_says
            from kept.sessions.transcript import open_transcripts

            return still_says(open_transcripts(config), hit.path, start=hit.start_line, end=hit.end_line, text=text)
        lines, max_bytes = hit.end_line - hit.start_line + 1, config.memory_search.max_file_bytes
        passage = read_passage(workspace, hit.path, start=hit.start_line, lines=lines, max_bytes=max_bytes)
    except KeptError:
        return False
    return text in passage.text

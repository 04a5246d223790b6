"""IndexService: the index of one workspace, opened when needed, kept in step with the files, searched and repaired."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from kept.base.clock import Clock
from kept.base.records import Progress, SearchResult
from kept.base.remote_errors import EmbeddingError
from kept.base.reports import Status, SyncReport, Usage
from kept.base.sqlite import ProcessLock, retry_damaged
from kept.config import Config
from kept.embedding.base import Embedder, usage_of
from kept.errors import ConfigError, LockBusy, StoreDamaged, StoreError, WriteFailed
from kept.index.index_handle import Freshness, IndexHandle, drop_outdated
from kept.index.sources import IndexLimits
from kept.index.sync_planner import SyncPlanner
from kept.index.sync_run import META_SYNCED, SyncRun
from kept.index.vectorise import measure_spending
from kept.notes.scan import Scan
from kept.notes.workspace import Workspace

if TYPE_CHECKING:
    from kept.embedding.onnx import CrossEncoder
    from kept.index.sqlite.index import Index
    from kept.search.candidates import QueryVector
    from kept.search.qmd import QmdBackend
    from kept.search.query import IndexQuery

T = TypeVar("T")
P = ParamSpec("P")


class IndexService:
    """The index of one agent and workspace. Safe to share between threads.

    Nothing is opened and no embedder is made before the first use. ``uses_signal`` is False for a service that belongs
    to a watcher.
    """

    def __init__(
        self,
        config: Config,
        workspace: Workspace,
        clock: Clock,
        *,
        embedder: Embedder | None = None,
        limits: IndexLimits | None = None,
        uses_signal: bool = True,
    ) -> None:
        self.config = config
        self.settings = config.memory_search
        self.workspace = workspace
        self.clock = clock
        self.limits = limits or IndexLimits()
        self.qmd: QmdBackend | None = None
        """The other program that indexes the same notes, if the settings choose it."""
        if self.settings.backend == "qmd":
            from kept.search.qmd import QmdBackend

            self.qmd = QmdBackend(config, workspace, clock)
        self._lock = ProcessLock(self._drop_parent)
        self._handle = IndexHandle(
            config,
            workspace,
            clock,
            self.limits,
            embedder,
            on_cache_loss=partial(self._note_replaced, remedy="It has been deleted; texts are embedded again."),
        )
        self._reranker: CrossEncoder | None = None
        self._freshness = Freshness(uses_signal=uses_signal and not config.database, endings=workspace.endings)
        self._folders: tuple[str, ...] = ()
        self._synced: Index | None = None
        """The index that the last sync compared with the files. Another one that has replaced it since may be empty."""
        self._is_fresh = False
        """True if that sync left it as new as the files."""
        self._settings_notices = config.notices

    def clone(self) -> IndexService:
        """Return a service of the same index with the same embedders and its own connection.

        It is for a thread that keeps the index current: searches do not wait for its syncs. The caller closes it.
        """
        own, limits = self._handle.own_embedder, self.limits
        clone = IndexService(self.config, self.workspace, self.clock, embedder=own, limits=limits, uses_signal=False)
        with self._lock:
            clone._handle.share_embedders(self._handle)
        return clone

    def close(self) -> None:
        with self._lock:
            self._close_index()
            self._freshness.close()

    def _drop_parent(self) -> None:
        """In a forked child, drop what belongs to the parent."""
        self._handle.forget_parent()
        self._freshness.close()
        self._reranker = None

    def require_usable(self) -> None:
        """Raise an error if memory search is switched off or the workspace is missing."""
        if not self.settings.enabled:
            raise ConfigError(
                "Memory search is switched off.", hint="Set agents.defaults.memory_search.enabled to true."
            )
        self.workspace.require()

    # the index and its embedder

    @property
    def path(self) -> str:
        """Path of the index, open or not."""
        return self._handle.path

    @property
    def embedder(self) -> Embedder | None:
        """The embedder in use: the preferred one, or its fallback while the index holds the fallback's vectors."""
        with self._lock:
            return self._handle.embedder

    @property
    def embedder_warnings(self) -> tuple[str, ...]:
        """Reasons why embedders that the settings name cannot be used."""
        with self._lock:
            return self._handle.embedder_warnings()

    def reductions(self) -> tuple[str, ...]:
        """Return why vectors are not made as the settings say: problems, a fallback in use, a size that does not fit,
        batches that are off. Asks no provider."""
        with self._lock:
            with suppress(StoreError):
                self._handle.use_embedder_of_index()
            return self._handle.reductions()

    @contextmanager
    def inspecting(self) -> Iterator[tuple[Index, SyncPlanner]]:
        """Give the open index and a planner on it, as they are: nothing is synced or repaired. Holds the lock."""
        with self._lock:
            yield self._handle.index(), self._handle.planner()

    def reopen(self) -> None:
        """Close the index; the next use opens it with a fresh connection."""
        with self._lock:
            self._close_index()

    def _close_index(self) -> None:
        self._handle.close()
        self._freshness.in_step = False

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
            warnings = self._repairing(self._sync_for_search, progress, growing)
            started = time.perf_counter()  # the time for the index is not that of the search
            embedder, reasons = self._handle.embedder_for_search(request.settings)
            usage = usage_of(embedder)
        # Outside the lock: a provider on the network may be slow, and other threads need not wait for it.
        vector, problems = embed_query(embedder, request.query) if embedder else (None, ())
        with self._lock:
            self._record_usage(usage)
            # The answer may be the first to tell that a server has another model now, with vectors of another size.
            if vector:
                warnings += self._repairing(self._heal_vectors, progress)
            result = self._repairing(self._search_index, request, vector)
            degraded = (*self._take_notices(), *warnings, *reasons, *problems, *result.degraded)
        return self.complete_result(replace(result, degraded=degraded), started)

    def complete_result(self, result: SearchResult, started: float) -> SearchResult:
        """Return a result with the embedder in use and the time since ``started``, and each reason once. Unless the
        index is as new as the files, hits that are not in them any more are dropped."""
        if not self._is_fresh:
            result = drop_outdated(result, self.workspace, self.config)
        reasons = dict.fromkeys(result.degraded)
        with self._lock:
            embedder = self._handle.embedder
            if not self.settings.sync.on_search and all(hit.grade == "weak" for hit in result.hits):
                age = self._handle.planner().describe_age("searches do not update it. Run 'kept index'.")
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
        self.require_usable()
        with self._lock:
            warnings = self._repairing(self._sync_for_search, progress)
            value = self._repairing(self._read, action)
            return value, tuple(dict.fromkeys((*self._take_notices(), *warnings)))

    def _read(self, action: Callable[[Index], T]) -> T:
        index = self._synced_index()
        with index.reading():
            return action(index)

    def _synced_index(self) -> Index:
        """Return the index. If another process has replaced a damaged one since the sync, the new one may be empty."""
        while self._handle.index() is not self._synced:
            self._sync_for_search(None)
        return self._handle.index()

    def _sync_for_search(self, progress: Progress | None, growing: str | None = None) -> tuple[str, ...]:
        """Bring the index up to date, unless the settings say otherwise. Return warnings about it."""
        self._handle.retry_writable()
        self._handle.use_embedder_of_index()
        before, index = self._synced, self._handle.index()
        self._synced, self._is_fresh = index, False
        if not self.settings.sync.on_search:
            return ()
        if index.why_read_only:
            why = f"it cannot be written now: {index.why_read_only.message}"
            warning = self._handle.planner().describe_age(why)
            self._is_fresh = not warning
            return (warning,) if warning else ()
        if index is before and self._freshness.is_fresh(growing):
            self._is_fresh = True
            return ()
        if reason := self._handle.planner().why_rebuild(run_settings=self.config.run_settings):
            return (f"The index is used as it is, perhaps without the newest changes: {reason} for this run only.",)
        try:
            # Nothing can be answered from an index that was never filled, such as a new one in place of a damaged one.
            is_filled = index.get_meta(META_SYNCED) is not None
            wait_s = self.limits.search_wait_s if is_filled else self.limits.sync_wait_s
            report = self._run_sync(progress=progress, wait_s=wait_s, in_search=True, growing=growing)
        except LockBusy:
            return ("Another process is indexing: the newest changes may be missing.",)
        except StoreDamaged:
            raise
        except (StoreError, WriteFailed) as exc:
            return (f"The index could not be brought up to date, so the newest changes may be missing: {exc.message}",)
        self._is_fresh = True
        if report.rebuilt:
            self._handle.notices.append(f"The index was rebuilt: {report.rebuilt}.")
        return report.failures

    def _heal_vectors(self, progress: Progress | None) -> tuple[str, ...]:
        """Rebuild the index if its embedder, by its last answer, gives vectors of another size now."""
        if self._handle.planner().size_change() is None:
            return ()
        self._freshness.in_step = False
        warnings = self._sync_for_search(progress)
        change = self._handle.planner().size_change()
        return (*warnings, f"Searching by word only: {change}. Run 'kept index'.") if change else warnings

    def _search_index(self, request: IndexQuery, vector: QueryVector | None) -> SearchResult:
        from kept.search.pipeline import search_index

        index, now_ms = self._synced_index(), self.clock.time_ns() // 1_000_000
        if vector and vector.identity != index.stored_identity():
            vector = None  # rebuilt with another embedder while the query was embedded
        problems: tuple[str, ...] = ()
        if (path := self.settings.query.rerank.model_path) and self._reranker is None:
            from kept.embedding.onnx import CrossEncoder

            try:
                self._reranker = CrossEncoder(path)
            except EmbeddingError as exc:
                problems = (f"Not reranked: {exc.message}",)
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
            report = self._repairing(self._try_embedders, force=force, progress=progress, by_request=by_request)
            notices = self._take_notices(with_settings=False)
            warnings = self._handle.embedder_warnings() if by_request else ()
        problem = self.qmd.sync(self.scan().files) if self.qmd else None
        return replace(
            report,
            failures=(*warnings, *report.failures, *([problem] if problem else ())),
            rebuilt=notices[0] if notices else report.rebuilt,
        )

    def repair(self, *, progress: Progress | None = None) -> SyncReport:
        """Check every table of the index, delete the file if it is damaged, and bring the index up to date."""
        self.require_usable()
        with self._lock:
            self._repairing(self._check_tables)
            self._handle.index().cache.check()
        return self.sync(progress=progress)

    def _check_tables(self) -> None:
        index = self._handle.index()
        if problems := index.find_damage():
            raise StoreDamaged(f"{index.path}: the index is damaged ({problems[0]}).")

    def _try_embedders(self, *, force: bool, progress: Progress | None, by_request: bool) -> SyncReport:
        """Sync with the preferred embedder. If it fails, sync with its fallback, whose vectors replace the others."""
        if by_request:
            self._handle.index().check_if_quick()
        failures, reason = list[str](), ""
        embedders = self._handle.embedders_for_sync()
        for number, embedder in enumerate(embedders):
            self._handle.use(embedder)
            wait_s = self.limits.sync_wait_s
            report = self._run_sync(force=force, progress=progress, wait_s=wait_s, retry=by_request)
            failures.extend(report.failures)
            vectors = self._handle.planner().vectors
            if vectors is None or not vectors.failed_recently():
                if embedder is not None and number > 0:
                    failures.append(f"{embedder.identity.model} was used instead.")
                    self._handle.note_fallback(reason)
                break
            reason = vectors.failure
        return replace(report, failures=tuple(failures))

    def _run_sync(
        self,
        *,
        force: bool = False,
        progress: Progress | None,
        wait_s: float,
        in_search: bool = False,
        growing: str | None = None,
        retry: bool = False,
    ) -> SyncReport:
        self._handle.retry_writable()
        planner = self._handle.planner()
        if retry and planner.vectors:
            planner.vectors.retry_now()
        self._synced = planner.index
        # Only a search may look at the changed files alone: who asks for a sync wants every file compared.
        scan = self._freshness.scan(planner.reader.scan, planner.reader.look if in_search else None)
        self._folders = scan.folders
        usage = usage_of(self._handle.embedder)
        run = SyncRun(
            planner,
            scan,
            batch_runner=self._handle.batch_runner(force=force, in_search=in_search),
            force=force,
            in_search=in_search,
            growing=growing,
            progress=progress,
        )
        report = run.run(wait_s=wait_s)
        self._freshness.note_sync(ok=not report.failures, growing=growing)
        self._record_usage(usage, cached=report.cached, texts=report.embedded)
        return report

    def _record_usage(self, before: Usage, *, cached: int = 0, texts: int = 0) -> None:
        """Record the usage since ``before``. ``texts`` is the number of embedded texts, for an embedder that does not
        count them."""
        embedder = self._handle.embedder
        # The built-in model costs nothing, so there is nothing to book, and a search need not write to the ledger.
        if embedder is None or getattr(embedder, "is_cheap", False):
            return
        if usage_of(embedder) == before and not cached and not texts:
            return
        from kept.models.ledger import open_embedding_ledger

        spending = measure_spending(embedder, before, self.settings, cached=cached, texts=texts)
        if problem := open_embedding_ledger(self.config, self.clock).record(spending):
            self._handle.notices.append(problem)

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
            self._handle.retry_writable()
            try:
                return add_index_status(status, self._handle.planner(), self.config, self.clock)
            except StoreDamaged:
                self._close_index()  # damage counts only if a fresh connection sees it too
            try:
                return add_index_status(status, self._handle.planner(), self.config, self.clock)
            except StoreDamaged as exc:
                reason = f"{exc.message} The next search, or 'kept index', rebuilds it from the notes."
                return replace(status, dirty=True, degraded=(*status.degraded, reason))

    def scan(self) -> Scan:
        with self._lock:
            return self._handle.planner().reader.scan()

    def folders(self) -> tuple[str, ...]:
        """Return every folder that the last sync listed. Any change of indexed files is a change in one of them."""
        with self._lock:
            return self._folders

    def find_unindexed(self, path: str, *, first_line: int, last_line: int) -> tuple[int, ...]:
        """Return the lines of a transcript that have text and that no search can find yet. Syncs nothing."""
        from kept.index.transcripts import find_unindexed

        with self._lock:
            index = self._handle.index()
            with index.reading():
                return find_unindexed(index.live, self.config, path, first_line=first_line, last_line=last_line)

    # repair

    def _repairing(self, action: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return retry_damaged(partial(action, *args, **kwargs), self._close_index, self._replace_index)

    def _replace_index(self, damage: StoreDamaged) -> None:
        """Delete the damaged index. The next sync fills a new one; embeddings come from their cache."""
        self._freshness.in_step = False
        if self._handle.discard_index(damage):
            self._note_replaced(damage, "It has been rebuilt from the notes; no embedding was lost.")

    def _note_replaced(self, damage: StoreDamaged, remedy: str) -> None:
        import logging  # a search that finds no damage does not need it

        log = logging.getLogger(__name__)
        if not log.handlers:
            log.addHandler(logging.NullHandler())  # a command reports it in its answer: Python need not print it too
        log.warning("%s %s", damage.message, remedy)
        self._handle.notices.append(f"{damage.message} {remedy}")

    def _take_notices(self, *, with_settings: bool = True) -> tuple[str, ...]:
        """Return what a result should report once: problems of the settings, and events of the index."""
        notices, self._handle.notices = tuple(self._handle.notices), []
        if with_settings:
            notices, self._settings_notices = (*self._settings_notices, *notices), ()
        return notices

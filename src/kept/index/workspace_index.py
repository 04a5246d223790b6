"""The index of one workspace: its embedder, its file, and whether it agrees with the notes and transcripts.

A `WorkspaceIndex` opens and loads when needed, and runs syncs; `search.service` adds searching. `Freshness` saves scans
while nothing changes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from kept.base.clock import Clock
from kept.base.records import Progress, SourceFile
from kept.base.reports import SyncReport, Usage
from kept.base.sqlite import ProcessLock, discard_if_damaged, forget_connection, retry_damaged
from kept.config import Config
from kept.config.schema import QuerySettings
from kept.embedding.base import Embedder, usage_of
from kept.embedding.registry import EmbedderChain, choose_chain
from kept.errors import StoreDamaged, StoreError
from kept.index.sources import IndexLimits, SourceReader
from kept.index.sqlite.index import Index, open_index
from kept.index.sync_planner import SEEN_BYTES, SyncPlanner
from kept.index.sync_run import META_EMBEDDER_SINCE, SyncRun
from kept.index.vectorise import Vectoriser, measure_spending
from kept.notes.scan import ANY_FILE, ChangeSignal, Scan
from kept.notes.workspace import Workspace

if TYPE_CHECKING:
    from kept.index.batches import BatchRunner

T = TypeVar("T")
P = ParamSpec("P")

# The kernel does not see every change (such as another machine's, on a network file system, or one under a second name
# of a note), so its signal is trusted for a limited time. A scan that takes long is put off.
RESCAN_AFTER_S, RESCAN_AT_LATEST_S = 5.0, 60.0
# A scan takes at most so small a part of the time.
_RESCAN_SHARE = 200

# A search embeds at most this many chunks again because a slow model was chosen. A larger index is searched by word
# until 'kept index' or a background sync has embedded it.
MAX_CHUNKS_EMBEDDED_BY_SEARCH = 50

_META_FALLBACK = "fallback"


class WorkspaceIndex:
    """The index of one agent and workspace. Nothing is opened and no embedder is made before the first use.

    Threads may share it: the methods of `IndexService` take the lock, and callers of the others hold it.
    ``uses_signal`` is False for an index that belongs to a watcher.
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
        self.config, self.workspace, self.clock = config, workspace, clock
        self.settings = config.memory_search
        self.limits = limits or IndexLimits()
        self._own_embedder = embedder
        self._settings_ns = clock.time_ns()
        self._lock = ProcessLock(self._drop_parent)
        self._notices: list[str] = []
        """Events to report to the user once."""
        self._settings_notices = config.notices
        self._opened: Index | None = None
        self._vectors: Vectoriser | None = None
        """Kept between syncs, because it remembers that the embedder failed a moment ago."""
        self._freshness = Freshness(uses_signal=uses_signal and not config.database, endings=workspace.endings)
        self._synced: Index | None = None
        """The index that the last sync compared with the files. Another one that has replaced it since may be empty."""
        self._folders: tuple[str, ...] = ()

    def close(self) -> None:
        with self._lock:
            self._close_index()
            self._freshness.close()

    def _close_index(self) -> None:
        if self._opened is not None:
            self._opened.close()
        self._opened = self._vectors = None
        self._freshness.in_step = False

    def _drop_parent(self) -> None:
        """In a forked child, drop what belongs to the parent: the connection, a model's threads, open sockets."""
        if self._opened is not None:
            forget_connection(self._opened)
        self._opened = self._vectors = None
        for name in ("chain", "_embedder"):
            vars(self).pop(name, None)
        self._freshness.close()

    # the embedder

    @cached_property
    def chain(self) -> EmbedderChain:
        """The embedders that the settings name, or the caller's own."""
        return choose_chain(self.config, own=self._own_embedder, policy=self.limits.retry_policy)

    @cached_property
    def _embedder(self) -> Embedder | None:
        return next(iter(self.chain.embedders), None)

    @property
    def embedder(self) -> Embedder | None:
        """The embedder in use: the preferred one, or its fallback while the index holds the fallback's vectors."""
        with self._lock:
            return self._embedder

    def reductions(self) -> tuple[str, ...]:
        """Return why vectors are not made as the settings say: problems, a fallback in use, a size that does not fit,
        batches that are off. Asks no provider."""
        with self._lock:
            with suppress(StoreError):
                self.use_embedder_of_index()
            reasons, embedder = [*self.chain.problems], self.embedder
            if embedder is None or self.index().stored_identity() != embedder.identity.key:
                return tuple(reasons)
            if embedder is not self.chain.embedders[0]:
                preferred, reason = self.chain.embedders[0].identity.model, self.index().get_meta(_META_FALLBACK) or ""
                instead = f"Using {embedder.identity.model} instead of {preferred}"
                reasons.append(
                    f"{instead}: {reason} 'kept index' tries {preferred} again." if reason else f"{instead}."
                )
            if (vectors := self.planner().vectors) and vectors.misfit:
                reasons.append(f"Searching by word only: {vectors.misfit}")
            if self.settings.remote.batch.enabled:
                from kept.index.batches import open_batches, read_book

                reasons.append(read_book(open_batches(self.config)).why_off(embedder.identity.key))
            return tuple(filter(None, reasons))

    def embedder_for_search(self, settings: QuerySettings) -> tuple[Embedder | None, tuple[str, ...]]:
        """Return the embedder for a query, or None, with the reasons if meaning should count and does not."""
        warnings, embedder = self.reductions(), self.embedder
        if not settings.hybrid.enabled or not self.chain.embedders:
            return None, warnings
        if embedder is None:
            notice = "the index has vectors of another model. Run 'kept index', or start this program anew."
            return None, (*warnings, f"Searching by word only: {notice}")
        if self.index().stored_identity() != embedder.identity.key:
            model = embedder.identity.model
            return None, (f"Searching by word only: the index does not hold vectors of {model} yet.",)
        vectors = self.planner().vectors
        return None if vectors and vectors.misfit else embedder, warnings

    def use_embedder_of_index(self) -> None:
        """Of several embedders, use the one whose vectors the index holds: those of two cannot be compared.

        Use none while vectors of another model stay in the index: until 'kept index' embeds a large one again with a
        slow model, or for good if the user has switched models since this process read its settings.
        """
        if not self.chain.embedders:
            return
        index, preferred = self.index(), self.chain.embedders[0]
        stored = index.stored_identity()
        used = next((embedder for embedder in self.chain.embedders if embedder.identity.key == stored), None)
        if used is None and (self._own_embedder is not None or stored is None):
            used = preferred
        elif used is None:
            is_slow = getattr(preferred, "is_slow", False)
            is_large = is_slow and index.live.count_chunks() > MAX_CHUNKS_EMBEDDED_BY_SEARCH
            used = None if is_large or self._is_outdated() else preferred
        self._embedder = used

    def _is_outdated(self) -> bool:
        """Return whether the index got its embedder after this process read its settings."""
        since_ns = self.index().get_meta(META_EMBEDDER_SINCE)
        return isinstance(since_ns, int) and since_ns > self._settings_ns

    # the index

    @property
    def path(self) -> str:
        """Path of the index, open or not."""
        if self._opened is not None:
            return self._opened.path
        if self.settings.store.path:
            return os.path.abspath(os.path.expanduser(self.settings.store.path))
        return self.config.paths.find_index(self.workspace.root)

    def index(self) -> Index:
        """Return the index. It is opened again if its file was deleted meanwhile."""
        if self._opened is not None and not self._opened.is_current():
            self._close_index()
            self._notices.append("The index was deleted; it has been rebuilt from the notes.")
        if self._opened is None:
            # Here, not in __init__: what only adds or reads notes opens no index.
            on_loss = partial(self._note_replaced, remedy="It has been deleted; texts are embedded again.")
            if self.config.database:
                from kept.index.postgres.index import PostgresIndex
                from kept.storage.open import open_database

                database, name = open_database(self.config.database), f"workspace:{self.config.agent_id}"
                # It has the methods of the other one, which the tests of both show.
                self._opened = cast(Index, PostgresIndex(database, name, self.workspace.storage))
            elif self.settings.store.path:
                self._opened = Index(self.path, on_cache_loss=on_loss)
            else:
                self._opened = open_index(self.config.paths, self.workspace.root, on_cache_loss=on_loss)
        return self._opened

    def retry_writable(self) -> None:
        """Close an index that could only be read: its disk may be writable now, or another process may have written."""
        if self._opened is not None and self._opened.why_read_only:
            self._close_index()

    def repairing(self, action: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call an action. Replace the index if it is damaged; the next sync fills the new one, with embeddings from
        their cache."""
        return retry_damaged(partial(action, *args, **kwargs), self._close_index, self._replace_index)

    def _replace_index(self, damage: StoreDamaged) -> None:
        index, wait_s = self._opened, self.limits.sync_wait_s
        if index is not None and index.why_read_only:
            raise damage
        db = index.db if index else None
        # The connection stays open until the file is deleted, so that no new file can get its number.
        try:
            is_deleted = discard_if_damaged(self.path, db, self.index, wait_s=wait_s, purpose="indexing")
        finally:
            self._close_index()
        if is_deleted:
            self._note_replaced(damage, "It has been rebuilt from the notes; no embedding was lost.")

    def _note_replaced(self, damage: StoreDamaged, remedy: str) -> None:
        import logging  # a search that finds no damage does not need it

        log = logging.getLogger(__name__)
        if not log.handlers:
            log.addHandler(logging.NullHandler())  # a command reports it in its answer: Python need not print it too
        log.warning("%s %s", damage.message, remedy)
        self._notices.append(f"{damage.message} {remedy}")

    # syncing

    def planner(self) -> SyncPlanner:
        index, embedder = self.index(), self.embedder
        if embedder is None:
            self._vectors = None
        elif self._vectors is None or self._vectors.embedder is not embedder:
            rest_s = self.limits.embedder_rest_s
            self._vectors = Vectoriser(index, embedder, self.settings.cache, self.clock, rest_s=rest_s)
        reader = SourceReader(self.workspace, self.config, self.clock, self.limits)
        return SyncPlanner(index, reader, self._vectors)

    def run_with_embedders(self, *, force: bool, progress: Progress | None, by_request: bool) -> SyncReport:
        """Sync with the preferred embedder. If it fails, sync with its fallback, whose vectors replace the others."""
        if by_request:
            self.index().check_if_quick()
        embedders: tuple[Embedder | None, ...] = self.chain.embedders or (None,)
        own = {embedder.identity.key for embedder in self.chain.embedders}
        if own and self._is_outdated() and self.index().stored_identity() not in own:
            embedders = (None,)  # a newer choice of another process counts more than our own
        failures, reason = list[str](), ""
        for number, embedder in enumerate(embedders):
            self._embedder = embedder
            report = self.run_sync(force=force, progress=progress, wait_s=self.limits.sync_wait_s, retry=by_request)
            failures.extend(report.failures)
            vectors = self.planner().vectors
            if vectors is None or not vectors.failed_recently():
                if embedder is not None and number > 0:
                    failures.append(f"{embedder.identity.model} was used instead.")
                    # For processes that did not see it fail.
                    with self.index().writing():
                        self.index().put_meta(_META_FALLBACK, reason)
                break
            reason = vectors.failure
        return replace(report, failures=tuple(failures))

    def run_sync(
        self,
        *,
        force: bool = False,
        progress: Progress | None,
        wait_s: float,
        in_search: bool = False,
        growing: str | None = None,
        retry: bool = False,
    ) -> SyncReport:
        """Run one sync with the embedder in use. ``retry`` asks one again that failed a moment ago."""
        self.retry_writable()
        planner = self.planner()
        if retry and planner.vectors:
            planner.vectors.retry_now()
        self._synced = planner.index
        # Only a search may look at the changed files alone: who asks for a sync wants every file compared.
        scan = self._freshness.scan(planner.reader.scan, planner.reader.look if in_search else None)
        self._folders = scan.folders
        usage = usage_of(self.embedder)
        batch_runner = (
            self._batch_runner(force=force, in_search=in_search) if self.settings.remote.batch.enabled else None
        )
        run = SyncRun(planner, scan, batch_runner, force, in_search, growing, progress)
        report = run.run(wait_s=wait_s)
        self._freshness.note_sync(ok=not report.failures, growing=growing)
        self.record_usage(usage, cached=report.cached, texts=report.embedded)
        return report

    def _batch_runner(self, *, force: bool, in_search: bool) -> BatchRunner | None:
        """Return what runs jobs at the provider's batch API, or None if it has none."""
        from kept.embedding.batch_api import find_batch_api
        from kept.index.batches import BatchRunner, open_batches

        api = find_batch_api(self.embedder)
        if api is None:
            return None
        book, job_texts, settings = open_batches(self.config), self.limits.job_texts, self.settings.remote.batch
        return BatchRunner(api, settings, book, self.clock, job_texts, force, in_search)

    def record_usage(self, before: Usage, *, cached: int = 0, texts: int = 0) -> None:
        """Record the usage since ``before``. ``texts`` is the number of embedded texts, for an embedder that does not
        count them."""
        embedder = self.embedder
        # The built-in model costs nothing, so there is nothing to book, and a search need not write to the ledger.
        if embedder is None or getattr(embedder, "is_cheap", False):
            return
        if usage_of(embedder) == before and not cached and not texts:
            return
        from kept.models.ledger import open_embedding_ledger

        spending = measure_spending(embedder, before, self.settings, cached=cached, texts=texts)
        if problem := open_embedding_ledger(self.config, self.clock).record(spending):
            self._notices.append(problem)


class Freshness:
    """Tells whether a search may skip scanning the files: index and files agree until the kernel signals a change.

    The signal is set up by the second scan: a process that searches once should not pay for it. ``uses_signal`` is
    False for a caller that watches the folders itself.
    """

    def __init__(self, *, uses_signal: bool = True, endings: tuple[str, ...] = (".md",)) -> None:
        self._endings = endings
        self._uses_signal = uses_signal
        self._signal: ChangeSignal | None = None
        self._scanned_before = False
        self._scanned_at = 0.0
        self._trusted_s = RESCAN_AFTER_S
        self._transcripts: dict[str, SourceFile] = {}
        """As the last scan saw them, by path."""
        self._last: Scan | None = None
        self._changed: set[str] = set()
        """Paths of files that changed since the last sync."""
        self.in_step = False
        """True after a sync that indexed everything, until something changes."""

    def _can_name_changes(self) -> bool:
        """Return whether index and files agree except for the files in ``_changed``."""
        if not self.in_step or self._signal is None or not self._signal.available:
            return False
        self._changed |= self._signal.read_changes()
        if ANY_FILE in self._changed or time.monotonic() - self._scanned_at > self._trusted_s:
            self.in_step = False
        return self.in_step

    def is_fresh(self, growing: str | None = None) -> bool:
        """Return whether the index has what is in the files. ``growing`` is the path of a transcript that may have
        grown a little."""
        if not self._can_name_changes():
            return False
        transcript = self._transcripts.get(growing or "")
        if transcript is None or not self._changed <= {transcript.absolute}:
            return not self._changed
        try:
            return 0 <= os.path.getsize(transcript.absolute) - transcript.size < SEEN_BYTES
        except OSError:
            return False

    def note_sync(self, *, ok: bool, growing: str | None = None) -> None:
        """Note that the index has what the last scan saw, except perhaps the end of a transcript."""
        self.in_step = ok
        if growing in self._transcripts:
            self._changed.add(self._transcripts[growing].absolute)

    def scan(self, scan: Callable[[], Scan], look: Callable[[Scan, set[str]], Scan | None] | None = None) -> Scan:
        """Scan the files, and from the second time on watch their folders for changes.

        If index and files agree except for files that the kernel named, ``look`` looks at these alone. It is None
        for a caller that wants all files, and returns None if it cannot tell.
        """
        if look is not None and self._last is not None and self._can_name_changes():
            changes = look(self._last, self._changed)
            if changes is not None:
                self.in_step = False
                self._changed.clear()
                self._transcripts |= {file.path: file for file in changes.files if file.source == "sessions"}
                return changes
        if self._uses_signal and self._scanned_before and self._signal is None:
            self._signal = ChangeSignal(self._endings)
        self._scanned_before = True
        self.in_step = False  # until a sync has indexed what this scan sees
        if self._signal is not None:
            self._signal.read_changes()  # discard: the scan sees everything up to now
        self._changed.clear()
        self._scanned_at, started = time.monotonic(), time.thread_time()
        result = scan()
        took_s = time.thread_time() - started
        while self._signal is not None and self._signal.watch(result.folders):
            result = scan()  # a folder that was not watched yet may have changed while it was read
        self._trusted_s = min(max(RESCAN_AFTER_S, _RESCAN_SHARE * took_s), RESCAN_AT_LATEST_S)
        self._transcripts = {file.path: file for file in result.files if file.source == "sessions"}
        self._last = result
        return result

    def close(self) -> None:
        if self._signal is not None:
            self._signal.close()
        self._signal = None
        self.in_step = False

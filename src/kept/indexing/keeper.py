"""Keeping one index: opening it, bringing it up to date, and replacing it when it is damaged or gone."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from kept.clock import Clock
from kept.config import Config
from kept.database_files import file_number
from kept.embedding.base import Embedder
from kept.errors import LockBusy, StoreDamaged, StoreError
from kept.forking import forget
from kept.indexing.freshness import Freshness
from kept.indexing.meter import spent_since, usage_of
from kept.indexing.sync import Syncer
from kept.ledger import Ledger, open_heal_ledger
from kept.lock import locked
from kept.records import BatchUnderWay, Progress, Spending, SyncReport, Usage
from kept.store.index import Index
from kept.store.integrity import check_pages_if_quick
from kept.store.owner import likely_path, open_index
from kept.workspace.paths import Workspace

if TYPE_CHECKING:
    from kept.indexing.batch_jobs import BatchJobs

SYNC_WAIT_S = 60.0
SEARCH_WAIT_S = 2.0

T = TypeVar("T")


class IndexService:
    """Not safe between threads by itself; Memory holds a lock around every use."""

    def __init__(
        self,
        config: Config,
        workspace: Workspace,
        embedders: tuple[Embedder, ...],
        clock: Clock,
        *,
        signals: bool = True,
    ) -> None:
        self.config = config
        self.settings = config.memory_search
        self.workspace = workspace
        self.embedders = embedders
        self.embedder = embedders[0] if embedders else None
        """The one in use: the first, or its fallback while the index holds the vectors of that."""
        self.clock = clock
        self.sessions_folder = os.path.join(self._folder(), "sessions")
        self.ledger = Ledger(os.path.join(self._folder(), "ledger.jsonl"), clock, Spending)
        self.heals = open_heal_ledger(self._folder(), clock)
        self._index: Index | None = None
        self._syncer: Syncer | None = None
        self._freshness = Freshness(signals=signals)
        self._notices: list[str] = []
        self.folders: tuple[str, ...] = ()
        """Those that the last look looked into."""

    def close(self) -> None:
        self._close_index()
        self._freshness.close()

    def after_fork(self) -> None:
        """In a forked child, before it is replaced: what is open is the parent's."""
        if self._index is not None:
            forget(self._index)
        self._index = None
        self._freshness.close()

    def index(self) -> Index:
        """Opened when it is first needed, and again when its file was deleted under us."""
        if self._index is not None and not self._index.is_current_file():
            self._close_index()
            self._notices.append("The index was deleted; it has been rebuilt from the notes.")
        if self._index is None:
            chosen = self.settings.store.path
            self._index = Index(self.path()) if chosen else open_index(self._folder(), self.workspace.root)
        return self._index

    def path(self) -> str:
        """Where the index is, opened or not."""
        if self._index is not None:
            return self._index.path
        if self.settings.store.path:
            return os.path.abspath(os.path.expanduser(self.settings.store.path))
        return likely_path(self._folder(), self.workspace.root)

    def syncer(self) -> Syncer:
        index = self.index()
        if self._syncer is None:
            self._syncer = Syncer(
                index,
                self.workspace,
                self.sessions_folder,
                self.embedder,
                self.settings,
                self.clock,
                self._batch_jobs(),
            )
        return self._syncer

    def _batch_jobs(self) -> BatchJobs | None:
        settings = self.settings.remote.batch
        if not settings.enabled:
            return None
        from kept.indexing.batch_jobs import make_batch_jobs

        return make_batch_jobs(self.embedder, settings, self._folder(), self.workspace.root, self.clock)

    def batches_under_way(self) -> tuple[BatchUnderWay, ...]:
        """Also where batches were switched off meanwhile: they go on, and are paid for."""
        from kept.indexing.batch_book import jobs_under_way

        jobs = jobs_under_way(self._folder(), self.workspace.root)
        return tuple(BatchUnderWay(job.provider, len(job.hashes), _local_time(job.intended_s)) for job in jobs)

    def _use(self, embedder: Embedder | None) -> None:
        if embedder is not self.embedder:
            self.embedder = embedder
            self._syncer = None

    def use_what_the_index_holds(self) -> None:
        """Of several embedders, the one whose vectors are there: those of two are never compared."""
        if len(self.embedders) > 1:
            held = self.syncer().held_identity()
            self._use(next((one for one in self.embedders if one.identity.key == held), self.embedders[0]))

    def sync(self, *, force: bool = False, progress: Progress | None = None) -> SyncReport:
        """With the preferred embedder; where that fails, with its fallback, whose vectors then take their place."""
        check_pages_if_quick(self.index())
        return self._sync(force=force, progress=progress, by_name=True)

    def take_in_changes(self, progress: Progress | None) -> SyncReport:
        """A sync of the background's own: the index is not examined, nor an embedder that failed asked before its
        time, as they would be each time a note is saved."""
        return self._sync(force=False, progress=progress, by_name=False)

    def _sync(self, *, force: bool, progress: Progress | None, by_name: bool) -> SyncReport:
        reports: list[SyncReport] = []
        for embedder in self.embedders or (None,):
            self._use(embedder)
            syncer = self.syncer()
            if by_name:
                syncer.try_embedder_again()
            reports.append(self._run(syncer, force=force, progress=progress, wait_s=SYNC_WAIT_S))
            if not syncer.embedder_failed():
                break
        failures = [failure for report in reports for failure in report.failures]
        if len(reports) > 1 and self.embedder and not self.syncer().embedder_failed():
            failures.append(f"{self.embedder.identity.model} was used instead.")
        return replace(reports[-1], failures=tuple(failures))

    def sync_for_search(self, progress: Progress | None) -> tuple[tuple[str, ...], bool]:
        """What has to be said about the state of the index, and whether it is as new as the notes."""
        self.use_what_the_index_holds()
        syncer = self.syncer()
        if not self.settings.sync.on_search:
            return (), False
        if self._freshness.is_fresh():
            return (), True
        try:
            report = self._run(syncer, force=False, progress=progress, wait_s=SEARCH_WAIT_S)
        except LockBusy:
            return ("Another process is indexing: the newest changes may be missing.",), False
        except StoreDamaged:
            raise
        except StoreError as exc:
            return (f"The index could not be brought up to date: {exc.message}",), False
        if report.rebuilt:
            self._notices.append(f"The index was rebuilt: {report.rebuilt}.")
        return report.failures, True

    def _run(self, syncer: Syncer, *, force: bool, progress: Progress | None, wait_s: float) -> SyncReport:
        scan = self._freshness.look(syncer.scan)
        self.folders = scan.folders
        before = usage_of(self.embedder)
        report = syncer.sync(force=force, progress=progress, wait_s=wait_s, scan=scan, hurry=wait_s < SYNC_WAIT_S)
        self._freshness.synced(fully=report.ok)
        self.record(before, cached=report.cached, texts=report.embedded)
        return report

    def record(self, before: Usage, *, cached: int = 0, texts: int = 0) -> None:
        """Writes down what was used since then. A local embedder's queries are not worth a line."""
        if self.embedder is not None:
            spent = spent_since(before, self.embedder, self.settings, cached=cached, texts=texts)
            problem = self.ledger.record(spent)
            if problem:
                self._notices.append(problem)

    def healing(self, action: Callable[[], T]) -> T:
        """Does something with the index; where that turns out to be damaged, mends it and tries once more."""
        try:
            return action()
        except StoreDamaged as damage:
            return self.after_healing(damage, action)

    def after_healing(self, damage: StoreDamaged, action: Callable[[], T]) -> T:
        """Mend the index, then act. What a fresh connection still finds damaged is replaced, whatever a check says."""
        self._heal(damage)
        try:
            return action()
        except StoreDamaged as again:
            self._heal(again, certain=True)
            return action()

    def mend(self) -> None:
        """Heal whatever a thorough look finds."""
        self._heal(StoreDamaged(f"{self.path()}: the index is damaged."))

    def _heal(self, damage: StoreDamaged, *, certain: bool = False) -> None:
        from kept.indexing.healing import describe, heal_index

        path, opened = self.path(), self._index.opened if self._index else None
        self._close_index()
        with locked(f"{path}.lock", wait_s=SYNC_WAIT_S, purpose="indexing"):
            certain = certain and opened is not None and file_number(path) == opened
            owner = None if self.settings.store.path else self.workspace.root
            heal = heal_index(path, damage, workspace=owner, certain=certain)
        if heal is not None:
            self._notices.append(f"{damage.message} {describe(heal)}")
            if problem := self.heals.record(heal):
                self._notices.append(problem)

    def reopen(self) -> None:
        """Forget what the connection has in memory."""
        self._close_index()

    def take_notices(self) -> tuple[str, ...]:
        """What happened to the index that the user should know of, once."""
        notices, self._notices = tuple(self._notices), []
        return notices

    def _folder(self) -> str:
        return os.path.join(self.config.home, "agents", self.config.agent_id)

    def _close_index(self) -> None:
        if self._index is not None:
            self._index.close()
        self._index = None
        self._syncer = None
        self._freshness.forget()


def _local_time(seconds: int) -> str:
    return dt.datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")

"""An index of a team with a replica in SQLite on this machine, which answers while the database cannot be reached.

The replica is a whole index of its own, filled from the same files by the same sync; vectors come from the cache of the
team. So it has everything that this machine sees, whoever wrote it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from kept.config import Config, QuerySettings
from kept.errors import KeptError, StoreError, StoreUnreachable
from kept.indexing.service import IndexService
from kept.indexing.sync import META_SYNCED
from kept.records import Filter, Progress, SearchResult
from kept.reports import Status, SyncReport
from kept.store.index import Index

if TYPE_CHECKING:
    from kept.indexing.sync_planner import SyncPlanner
    from kept.search.pipeline import IndexSearchResult
    from kept.search.query import ParsedQuery
    from kept.store.protocol import StoredGeneration, StoredIndex

T = TypeVar("T")

RETRY_AFTER_S = 5.0
"""Time after a failure in which searches do not try the database again: each attempt may take its whole time limit."""


class ReplicatedIndexService(IndexService):
    """The index of a workspace in the database of a team. Searches are answered by the replica in an outage.

    Nobody who holds the lock of this service waits for that of the replica, which asks this service for vectors. What
    the replica embedded in an outage is read from its file, and so reaches the cache of the team with the next sync.
    """

    def _add_parts(self) -> None:
        self._retry_at = 0.0
        self._shares_embedders = False
        self._replica = IndexService(
            _replica_config(self.config),
            self.workspace,
            self.clock,
            embedder=self._handle.own_embedder,
            limits=self.limits,
            uses_signal=self._uses_signal,
        )
        self._replica._handle.find_shared = self._find_in_team
        self._handle.find_shared = self._find_in_replica

    def close(self) -> None:
        super().close()
        self._replica.close()

    def after_fork(self) -> None:
        super().after_fork()
        self._shares_embedders = False

    def reopen(self) -> None:
        super().reopen()
        self._replica.reopen()

    # reading its state

    @contextmanager
    def inspecting(self) -> Iterator[tuple[StoredIndex, SyncPlanner]]:
        """Give the index of the team, or else that of the replica."""
        if self._is_reachable():
            with super().inspecting() as parts:
                yield parts
        else:
            with self._replica.inspecting() as parts:
                yield parts

    def status(self) -> Status:
        outage = self.find_outage()
        if outage is None:
            return super().status()
        status = self._replica.status()
        return replace(status, degraded=(outage, *status.degraded))

    def find_outage(self) -> str | None:
        if self._is_reachable():
            return None
        with self._replica.inspecting() as (index, _), index.reading():
            synced = index.get_meta(META_SYNCED)
        since = f"the replica of {synced}" if synced else "a new replica"
        return f"The team's database cannot be reached: searches are answered from {since} on this machine."

    def _is_reachable(self) -> bool:
        if time.monotonic() < self._retry_at:
            return False
        try:
            with super().inspecting() as (index, _), index.reading():
                index.live.count_chunks()
        except StoreUnreachable:
            self._retry_at = time.monotonic() + RETRY_AFTER_S
            return False
        return True

    # searching

    def search(
        self,
        query: ParsedQuery,
        settings: QuerySettings,
        filters: Filter,
        *,
        growing: str | None = None,
        progress: Progress | None = None,
    ) -> SearchResult:
        result, notices = self._answer(
            lambda: super(ReplicatedIndexService, self).search(
                query, settings, filters, growing=growing, progress=progress
            ),
            lambda: self._replica.search(query, settings, filters, progress=progress),
        )
        return replace(result, degraded=(*notices, *result.degraded)) if notices else result

    def read(
        self, action: Callable[[StoredGeneration], T], *, progress: Progress | None = None
    ) -> tuple[T, tuple[str, ...]]:
        (value, reasons), notices = self._answer(
            lambda: super(ReplicatedIndexService, self).read(action, progress=progress),
            lambda: self._replica.read(action, progress=progress),
        )
        return value, (*notices, *reasons)

    def list_time(
        self, filters: Filter, *, max_results: int, progress: Progress | None = None
    ) -> tuple[IndexSearchResult, int]:
        (result, total), notices = self._answer(
            lambda: super(ReplicatedIndexService, self).list_time(filters, max_results=max_results, progress=progress),
            lambda: self._replica.list_time(filters, max_results=max_results, progress=progress),
        )
        return replace(result, degraded=(*notices, *result.degraded)), total

    def _answer(self, ask_team: Callable[[], T], ask_replica: Callable[[], T]) -> tuple[T, tuple[str, ...]]:
        """Return the answer of the team's index, or else that of the replica, and notices about both."""
        if time.monotonic() >= self._retry_at:
            try:
                answer = ask_team()
            except StoreUnreachable:
                self._retry_at = time.monotonic() + RETRY_AFTER_S
            else:
                return answer, self._fill(lambda: self._replica.read(lambda live: None))
        self._share_embedders()
        self.replica_answers += 1
        notice = "The team's database cannot be reached: a replica on this machine answers, with what this machine has."
        return ask_replica(), (notice,)

    # filling the replica

    def sync(self, *, force: bool = False, progress: Progress | None = None) -> SyncReport:
        report = super().sync(force=force, progress=progress)
        problems = self._fill(lambda: self._replica.sync(force=force))
        return replace(report, failures=(*report.failures, *problems))

    def sync_background(self, *, progress: Progress | None = None) -> SyncReport:
        report = super().sync_background(progress=progress)
        problems = self._fill(self._replica.sync_background)
        return replace(report, failures=(*report.failures, *problems))

    def _fill(self, bring_up_to_date: Callable[[], object]) -> tuple[str, ...]:
        """Bring the replica up to date. Return a problem: the team's index has answered all the same."""
        try:
            self._share_embedders()
            bring_up_to_date()
        except KeptError as exc:
            return (f"The replica on this machine was not brought up to date: {exc.message}",)
        return ()

    def _share_embedders(self) -> None:
        """Let the replica use the models that this service has loaded."""
        if not self._shares_embedders:
            with self._lock:
                self._replica._handle.share_embedders(self._handle)
            self._shares_embedders = True

    def _find_in_team(self, identity: str, hashes: Iterable[bytes], dims: int) -> Mapping[bytes, bytes]:
        """Return vectors that the team has paid for. In an outage there are none."""
        if time.monotonic() < self._retry_at:
            return {}
        try:
            with self._lock:
                index = self._handle.index()
                with index.reading():
                    return index.cache.find(identity, hashes, dims)
        except StoreError:
            return {}

    def _find_in_replica(self, identity: str, hashes: Iterable[bytes], dims: int) -> Mapping[bytes, bytes]:
        """Return vectors that the replica has paid for."""
        path = self._replica.path
        if not os.path.exists(path):
            return {}
        try:
            file = Index(path)  # a connection of its own, since another thread may hold the lock of the replica
            try:
                return file.cache.find(identity, hashes, dims)
            finally:
                file.close()
        except StoreError:
            return {}


def _replica_config(config: Config) -> Config:
    """Return the settings of an index in SQLite at its usual place, where 'kept forget' finds it."""
    store = replace(config.memory_search.store, driver="sqlite", path=None)
    search = replace(config.memory_search, store=store)
    return replace(config, agent=replace(config.agent, memory_search=search))

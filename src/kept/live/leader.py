"""The loop of the leader: wait for changes, sync when one is due, until the lead is lost."""

from __future__ import annotations

import logging
import time
from threading import Event

from kept.errors import KeptError
from kept.indexing.service import IndexService
from kept.live.leadership import Leadership
from kept.live.reporting import LiveReporter
from kept.live.schedule import LiveTiming, PendingChanges, SyncSchedule
from kept.live.watch_supervisor import WatchSupervisor
from kept.records import SyncReport

log = logging.getLogger(__name__)

_MAX_WATCH_SETUPS = 5


class _SyncStopped(Exception):
    """Ends a running sync between two batches of files, because the program ends."""


class LeaderLoop:
    """One lead. `run` returns when ``stop`` is set or the lock is lost; ``ready`` is set after the first sync."""

    def __init__(
        self,
        service: IndexService,
        leadership: Leadership,
        reporter: LiveReporter,
        timing: LiveTiming,
        *,
        stop: Event,
        ready: Event,
        watches: bool,
    ) -> None:
        self._service = service
        self._settings = service.settings.sync
        self._leadership = leadership
        self._reporter = reporter
        self._tick_s = timing.tick_s
        self._stop = stop
        self._ready = ready
        self._watches = watches
        self._schedule = SyncSchedule(self._settings, timing)
        self._supervisor = WatchSupervisor(service, stop, reporter, timing, enabled=watches)

    def run(self) -> None:
        if not (self._watches or self._settings.on_session_start):
            self._schedule.note_sync(time.monotonic(), took_s=0.0, ok=True)
        try:
            for warning in self._service.embedder_warnings:
                self._reporter.report_notice(warning)
            while not self._stop.is_set() and self._leadership.is_leader():
                if self._is_due() or self._supervisor.may_retry_kernel():
                    self._sync_and_watch()
                else:
                    self._wait_for_changes()
        finally:
            self._supervisor.close()
            self._leadership.release()
            self._ready.set()

    def _is_due(self) -> bool:
        now_s = time.monotonic()
        if self._schedule.is_due(now_s):
            return True
        if not self._schedule.needs_measuring(now_s):
            return False
        try:
            is_enough = self._service.growth_reached()
        except KeptError as exc:
            self._reporter.report_problem(exc.message)
            is_enough = True  # the sync reports what is wrong
        if not is_enough:
            self._schedule.note_small_growth()
        return is_enough

    def _wait_for_changes(self) -> None:
        timeout_s = min(self._tick_s, max(0.0, self._schedule.wake_at() - time.monotonic()))
        changes, lag_s = self._supervisor.wait(timeout_s)
        if changes:
            self._schedule.note_change(changes, time.monotonic() - lag_s)
            self._reporter.update(last_change=changes.latest or self._reporter.state().last_change)
        if self._supervisor.roots_changed():
            self._schedule.note_change(PendingChanges(notes=1), time.monotonic())
        self._reporter.update(waiting=self._schedule.waiting)

    def _sync_and_watch(self) -> None:
        """Sync, and watch the folders that the sync listed. If they were not watched during the sync, sync again:
        they may have changed meanwhile."""
        for _ in range(_MAX_WATCH_SETUPS):
            listed = self._sync()
            if self._stop.is_set() or not listed or not self._supervisor.needs_new_watch():
                break
            self._supervisor.set_up()
        else:  # folders come and go faster than they can be watched
            self._schedule.note_change(PendingChanges(notes=1), time.monotonic())
        self._supervisor.report_mode()
        self._ready.set()

    def _sync(self) -> bool:
        """Sync and report. Return whether the folders were listed."""
        started = time.monotonic()
        self._reporter.update(syncing=True, completed=0, total=0)
        report, problem = self._try_to_sync()
        syncs = self._reporter.state().syncs
        if report is not None:
            syncs += 1
            now = self._service.clock.now().isoformat(timespec="seconds")
            self._reporter.update(files=report.files, chunks=report.chunks, last_sync=now, syncs=syncs)
        now_s = time.monotonic()
        self._schedule.note_sync(now_s, took_s=now_s - started, ok=problem is None)
        self._reporter.update(syncing=False, waiting=0)
        if problem:
            self._reporter.report_problem(problem)
        else:
            self._reporter.update(problem=None)
        if report is not None and (report.indexed or report.removed or report.rebuilt or syncs == 1):
            self._reporter.report_sync(report)
        return report is not None

    def _try_to_sync(self) -> tuple[SyncReport | None, str | None]:
        """Return the report, or None, and the problem, or None."""
        try:
            report = self._service.sync_background(progress=self._report_progress)
        except _SyncStopped:
            return None, None
        except KeptError as exc:
            return None, f"{exc.message} {exc.hint}".strip()
        except Exception as exc:  # the thread must survive whatever one sync meets
            log.info("a sync failed", exc_info=True)
            return None, describe_unexpected(exc)
        return report, report.failures[0] if report.failures else None

    def _report_progress(self, completed: int, total: int, label: str) -> None:
        if self._stop.is_set():
            raise _SyncStopped
        self._reporter.update(completed=completed, total=total)


def describe_unexpected(exc: Exception) -> str:
    return f"Unexpected error: {type(exc).__name__}: {exc}"

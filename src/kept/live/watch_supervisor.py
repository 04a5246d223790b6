"""Keeps a watch on the folders of an index: sets it up again when folders change, and polls if the kernel refuses."""

from __future__ import annotations

import time
from threading import Event

from kept.indexing.service import IndexService
from kept.indexing.sources import cite_source
from kept.live.reporting import LiveReporter
from kept.live.schedule import LiveTiming, PendingChanges
from kept.live.watcher import KernelWatch, NoWatch, PollingWatch, Watch
from kept.sqlite import file_number

_INSTALL_HINT = "To be notified at once, install: pip install 'kept[watch]'"
_LIMITS_HINT = "Raising fs.inotify.max_user_instances and fs.inotify.max_user_watches may help."


class WatchSupervisor:
    """The current watch. ``enabled`` is False for an index that is synced by the interval only."""

    def __init__(
        self, service: IndexService, stop: Event, reporter: LiveReporter, timing: LiveTiming, *, enabled: bool
    ) -> None:
        self._service = service
        self._stop = stop
        self._reporter = reporter
        self._timing = timing
        self._enabled = enabled
        self._watch: Watch = NoWatch(stop)
        self._kernel_retry_at_s: float | None = None
        self._roots = (service.workspace.root, *service.workspace.extra_paths)
        self._root_files = self._identify_roots()

    def wait(self, timeout_s: float) -> tuple[PendingChanges, float]:
        """Wait for changes. Return them, and how long ago they may have happened."""
        try:
            changes = self._watch.wait(timeout_s)
        except OSError as exc:
            self._watch.close()
            self._watch = self._poll(str(exc))
            return PendingChanges(notes=1), 0.0  # changes may have been missed
        return changes, self._watch.lag_s

    def roots_changed(self) -> bool:
        """Return whether the workspace or an extra path is another folder than before: it may have been replaced, or
        a link may lead elsewhere. The watch is set up again after the next sync."""
        before, self._root_files = self._root_files, self._identify_roots()
        if self._root_files == before:
            return False
        self._watch.is_stale = self._enabled
        return True

    def needs_new_watch(self) -> bool:
        """Return whether the last sync listed other folders than are watched."""
        if not self._enabled:
            return False
        if isinstance(self._watch, PollingWatch):
            return self.may_retry_kernel()
        return self._watch.is_stale or self._watch.folders != frozenset(self._service.folders())

    def may_retry_kernel(self) -> bool:
        """Return whether to ask the kernel again: another process may have freed its watches."""
        is_polling = isinstance(self._watch, PollingWatch) and self._kernel_retry_at_s is not None
        return is_polling and time.monotonic() >= (self._kernel_retry_at_s or 0.0)

    def set_up(self) -> None:
        """Watch the folders that the last sync listed."""
        self._watch.close()
        self._watch = self._make_watch()

    def report_mode(self) -> None:
        self._reporter.update(watching=self._watch.mode)

    def close(self) -> None:
        self._watch.close()

    def _make_watch(self) -> Watch:
        folders = self._service.folders()
        if not folders:  # nothing could be listed yet
            return NoWatch(self._stop)
        quiet_s = self._service.settings.sync.watch_debounce_ms / 1000
        try:
            return KernelWatch(folders, self._cite, self._stop, quiet_s=quiet_s)
        except FileNotFoundError:  # deleted since; the next sync lists the folders that exist
            return NoWatch(self._stop)
        except ImportError:
            return self._poll("the package 'watchfiles' is missing", hint=_INSTALL_HINT, retry=False)
        except OSError as exc:
            return self._poll(str(exc))

    def _poll(self, reason: str, *, hint: str = _LIMITS_HINT, retry: bool = True) -> Watch:
        self._kernel_retry_at_s = time.monotonic() + self._timing.kernel_retry_s if retry else None
        self._reporter.report_notice(
            f"The kernel does not report changes ({reason}), so folders are scanned from time to time. {hint}"
        )
        return PollingWatch(self._service.scan, self._stop, poll_s=self._timing.poll_s)

    def _cite(self, absolute: str) -> str | None:
        return cite_source(absolute, self._service.workspace, self._service.config.paths.sessions)

    def _identify_roots(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(file_number(root) for root in self._roots)

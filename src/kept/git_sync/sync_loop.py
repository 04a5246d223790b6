"""`SyncLoop`: a thread that synchronises regularly, as long as a program runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Union

from kept.errors import KeptError, LockBusy

if TYPE_CHECKING:
    from kept.git_sync.git_sync import GitSync
    from kept.git_sync.sync_report import GitSyncReport

log = logging.getLogger(__name__)

_STOP_WAIT_S = 10.0
SyncListener = Callable[[Union["GitSyncReport", KeptError]], None]


class SyncLoop:
    """Synchronises every `sync.git.interval_s`, the first time at once. A failure is reported once, and retried."""

    def __init__(self, sync: GitSync, listener: SyncListener | None = None) -> None:
        self._sync = sync
        self._listener = listener
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kept-git-sync", daemon=True)
        self._problem = ""

    def __enter__(self) -> SyncLoop:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop. A sync that waits for its remote is left behind: the next one goes on with it."""
        self._stop.set()
        self._thread.join(_STOP_WAIT_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.run_once()
            self._stop.wait(self._sync.settings.interval_s)

    def run_once(self) -> None:
        try:
            report = self._sync.run(wait_s=0)
        except LockBusy:
            return  # another process does it
        except KeptError as exc:
            if str(exc) != self._problem:
                self._problem = str(exc)
                log.warning("The workspace could not be synchronised: %s", exc.message)
                self._tell(exc)
            return
        self._problem = ""
        if report.committed or report.pulled or report.pushed or report.conversations_received:
            log.info("Synchronised: %d files sent, %d received", len(report.committed), len(report.pulled))
            self._tell(report)

    def _tell(self, event: GitSyncReport | KeptError) -> None:
        if self._listener is not None:
            self._listener(event)

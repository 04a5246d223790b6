"""`FilesLoop`: a thread that keeps the folder current, as long as a program runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType

from kept.errors import KeptError, LockBusy
from kept.postgres.leases import process_name
from kept.postgres.notifications import Listener
from kept.team_files.files_report import TeamFilesReport
from kept.team_files.team_files import TeamFiles

log = logging.getLogger(__name__)

_STOP_WAIT_S = 10.0
FilesListener = Callable[[TeamFilesReport | KeptError], None]


class FilesLoop:
    """Synchronises when another machine has sent something, and every `sync.database.interval_s`, since programs that
    are not Kept's tell nobody. A failure is reported once, and retried."""

    def __init__(self, files: TeamFiles, listener: FilesListener | None = None) -> None:
        self._files = files
        self._listener = listener
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kept-team-files", daemon=True)
        self._notices: Listener | None = None
        self._problem = ""

    def __enter__(self) -> FilesLoop:
        tables = self._files.tables
        self._notices = Listener(tables.database, tables.topic, self._wake.set, me=process_name())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._wake.set()
        if self._notices is not None:
            self._notices.stop()
        self._thread.join(_STOP_WAIT_S)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            self.run_once()
            self._wake.wait(self._files.settings.interval_s)

    def run_once(self) -> None:
        try:
            report = self._files.run(wait_s=0)
        except LockBusy:
            return  # another process does it
        except KeptError as exc:
            if str(exc) != self._problem:
                self._problem = str(exc)
                log.warning("The workspace could not be synchronised: %s", exc.message)
                self._tell(exc)
            return
        self._problem = ""
        if report.sent or report.received or report.conversations_sent or report.conversations_received:
            log.info("Synchronised: %d files sent, %d received", len(report.sent), len(report.received))
            self._tell(report)

    def _tell(self, event: TeamFilesReport | KeptError) -> None:
        if self._listener is not None:
            self._listener(event)

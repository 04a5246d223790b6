"""A measurement of recall in the background, for the page that shows its report."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import replace

from kept import __version__
from kept.bench.measurement import MeasurePlan
from kept.bench.report_page import PAGE, write_report
from kept.bench.set_workers import measure_sets, read_sets
from kept.bench.starter import write_starter
from kept.clock import Clock
from kept.config import Config
from kept.errors import KeptError, UsageError
from kept.values import frozen

log = logging.getLogger(__name__)


@frozen
class RecallProgress:
    is_running: bool = False
    completed: int = 0
    total: int = 0
    activity: str = ""
    problem: str = ""
    """Why the last measurement failed."""


class RecallRun:
    """One measurement at a time. Safe to share between threads."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._progress = RecallProgress()
        self._thread: threading.Thread | None = None

    @property
    def report_path(self) -> str:
        return os.path.join(self._config.paths.bench_report, PAGE)

    @property
    def own_set(self) -> str:
        """Folder of the set that is made from the notes."""
        return self._config.paths.bench_set

    def progress(self) -> RecallProgress:
        with self._lock:
            return self._progress

    def start(self, folder: str) -> None:
        """Measure a set, or with an empty name the one that is made from the notes. Raise KeptError if it is none."""
        if not folder:
            folder = self.own_set
            if not os.path.isdir(folder):
                write_starter(self._config, folder)
        sets = read_sets([folder])
        with self._lock:
            if self._progress.is_running:
                raise UsageError("A measurement is running.", hint="Wait for its end.")
            self._progress = RecallProgress(is_running=True, activity="Reading the set")

        def report(_: str, completed: int, total: int, activity: str) -> None:
            with self._lock:
                self._progress = replace(self._progress, completed=completed, total=total, activity=activity)

        def run() -> None:
            problem = ""
            try:
                measured = measure_sets(sets, self._config, MeasurePlan(), jobs=1, report=report)
                today = self._clock.now().date()
                write_report(os.path.dirname(self.report_path), measured, jobs=1, version=__version__, date=today)
            except KeptError as exc:
                problem = f"{exc.message} {exc.hint}".strip()
            except Exception as exc:  # the page shows it: nobody waits for this thread
                log.exception("a measurement of recall failed")
                problem = f"Unexpected error: {type(exc).__name__}: {exc}"
            with self._lock:
                self._progress = RecallProgress(problem=problem)

        self._thread = threading.Thread(target=run, name="kept-recall", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait for the end of the measurement."""
        if self._thread is not None:
            self._thread.join()

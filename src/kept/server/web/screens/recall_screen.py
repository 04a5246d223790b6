"""Recall: measure how well questions find their answers, and read the figures."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import threading
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from kept.base.clock import Clock
from kept.base.durable import write_atomic
from kept.base.values import frozen
from kept.config import Config
from kept.errors import KeptError, UsageError
from kept.server.bench.measurement import measure_set, read_sets, set_json
from kept.server.bench.starter import write_starter
from kept.server.web.visit import Page, Screen, Visit

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

    def read_figures(self) -> dict[str, Any] | None:
        """Return the last measurement: when it was made, and its figures as `kept bench --json` prints them."""
        try:
            with open(self._config.paths.bench_figures, encoding="utf-8") as file:
                figures = json.load(file)
                return {"measured": dt.datetime.fromisoformat(figures["measured"]), "set": figures["set"]}
        except (OSError, ValueError, KeyError, TypeError):
            return None

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
        [bench] = read_sets([folder])
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
                figures = set_json(measure_set(bench, self._config, progress=report))
                record = {"measured": self._clock.now().isoformat(), "set": figures}
                write_atomic(self._config.paths.bench_figures, json.dumps(record).encode())
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


def show_recall(visit: Visit) -> Response:
    run = visit.site.recall
    return visit.render(
        "recall.html",
        progress=run.progress(),
        last=run.read_figures(),
        own_set=run.own_set,
        has_own_set=os.path.isdir(run.own_set),
    )


def start_measuring(visit: Visit) -> Response:
    visit.site.recall.start(os.path.expanduser(visit.form.get("folder", "").strip()))
    return visit.redirect("/recall")


SCREEN = Screen(
    name="bench",
    label="Recall",
    home="/recall",
    pages=(
        Page("/recall", show_recall, "read"),
        Page("/recall/run", start_measuring, "measure recall", ("POST",)),
    ),
    key="b",
)

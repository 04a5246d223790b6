"""Recall: measure how well questions find their answers, and read the figures."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import threading
from typing import Any

from starlette.responses import Response

from kept.bench.dataset import BenchSet
from kept.bench.measurement import measure_set, read_sets, set_json
from kept.bench.starter import write_starter
from kept.clock import Clock
from kept.config import Config
from kept.durable import write_atomic
from kept.errors import KeptError, UsageError
from kept.web.visit import Page, Screen, Visit

log = logging.getLogger(__name__)


class RecallRun:
    """One measurement at a time. Safe to share between threads."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self.is_running = False
        self.problem = ""
        """Why the last measurement failed."""
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

    def start(self) -> None:
        """Measure the set that is made from the notes, in a thread. Raise KeptError if there is none."""
        if not os.path.isdir(self.own_set):
            write_starter(self._config, self.own_set)
        [bench] = read_sets([self.own_set])
        with self._lock:
            if self.is_running:
                raise UsageError("A measurement is running.", hint="Wait for its end.")
            self.is_running, self.problem = True, ""
        self._thread = threading.Thread(target=self._measure, args=(bench,), name="kept-recall", daemon=True)
        self._thread.start()

    def _measure(self, bench: BenchSet) -> None:
        try:
            record = {"measured": self._clock.now().isoformat(), "set": set_json(measure_set(bench, self._config))}
            write_atomic(self._config.paths.bench_figures, json.dumps(record).encode())
        except KeptError as exc:
            self.problem = f"{exc.message} {exc.hint}".strip()
        except Exception as exc:  # the page shows it: nobody waits for this thread
            log.exception("a measurement of recall failed")
            self.problem = f"Unexpected error: {type(exc).__name__}: {exc}"
        self.is_running = False

    def wait(self) -> None:
        """Wait for the end of the measurement."""
        if self._thread is not None:
            self._thread.join()


def show_recall(visit: Visit) -> Response:
    run = visit.site.recall
    return visit.render(
        "recall.html",
        run=run,
        last=run.read_figures(),
        has_own_set=os.path.isdir(run.own_set),
    )


def start_measuring(visit: Visit) -> Response:
    visit.site.recall.start()
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

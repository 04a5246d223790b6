"""Measures several sets, each in a process of its own.

A worker process ends with the process that started it, however that ends, and removes its temporary folder.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from kept.bench.dataset import BenchSet, read_set
from kept.bench.measurement import MeasurePlan, SetMeasurement, measure_set, remove_folders
from kept.bench.threshold import make_foreign_queries
from kept.config import Config
from kept.errors import BenchSetInvalid

Report = Callable[[str, int, int, str], None]
"""Called with the name of a set, the steps done, the steps in total, and a label of the current one."""

_POLL_S = 0.2
_REMOVALS = 50
"""Attempts to remove a folder in which the main thread still writes."""
_progress_queue: Any = None
"""Queue for the progress of a worker process; None in any other process.

A queue can only be inherited when a process starts, not sent with a task. A manager's queue could, but the manager
listens on a socket below TMPDIR, whose path may be too long for one.
"""


def read_sets(folders: Sequence[str]) -> list[BenchSet]:
    sets = [read_set(folder) for folder in folders]
    names = [bench.name for bench in sets]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise BenchSetInvalid(f"Two of the sets are called '{duplicate}'.", hint="Rename one of the folders.")
    return sets


def measure_sets(
    sets: Sequence[BenchSet], config: Config, plan: MeasurePlan, *, jobs: int, report: Report | None = None
) -> list[SetMeasurement]:
    """Measure the sets and return the results in their order."""
    plans = [
        replace(plan, foreign=tuple(make_foreign_queries(bench, [other for other in sets if other is not bench])))
        for bench in sets
    ]
    if jobs == 1 or len(sets) == 1:
        return [
            measure_set(bench, config, set_plan, progress=_report_for(bench.name, report))
            for bench, set_plan in zip(sets, plans, strict=True)
        ]
    return _measure_together(sets, config, plans, jobs=min(jobs, len(sets)), report=report)


def _report_for(name: str, report: Report | None) -> Callable[[int, int, str], None] | None:
    return None if report is None else lambda done, total, label: report(name, done, total, label)


def _measure_together(
    sets: Sequence[BenchSet], config: Config, plans: Sequence[MeasurePlan], *, jobs: int, report: Report | None
) -> list[SetMeasurement]:
    # A spawned process inherits no threads and no locks of this one.
    context = multiprocessing.get_context("spawn")
    measurements: dict[str, SetMeasurement] = {}
    progress = context.Queue()
    stop, keep_running = context.Pipe(duplex=False)
    start = (progress, stop)
    with keep_running, ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker, initargs=start) as pool:
        # The longest first, so that no process waits for a long one that was started last.
        work = sorted(zip(sets, plans, strict=True), key=lambda pair: -_effort(pair[0]))
        running: set[Future[SetMeasurement]] = {
            pool.submit(_measure_in_worker, bench, config, set_plan) for bench, set_plan in work
        }
        try:
            while running:
                done, running = wait(running, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                for steps in _drain(progress):
                    if report is not None:
                        report(*steps)
                for future in done:
                    measurement = future.result()
                    measurements[measurement.name] = measurement
        except BaseException:  # also KeyboardInterrupt and the end by a signal: no set goes on
            keep_running.close()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [measurements[bench.name] for bench in sets]


def _effort(bench: BenchSet) -> int:
    return sum(len(document.text) for document in bench.documents) + 5_000 * len(bench.queries)


def stop_on_sigterm() -> None:
    """Let SIGTERM end this process like an error, so that temporary folders are removed and workers end."""
    signal.signal(signal.SIGTERM, _exit)


def _start_worker(progress: Any, stop: Connection) -> None:
    global _progress_queue
    _progress_queue = progress
    stop_on_sigterm()
    threading.Thread(target=_end_with_parent, args=(stop,), daemon=True).start()


def _end_with_parent(stop: Connection) -> None:
    """Wait until the other end of a pipe, which only the parent has, is closed: by the parent, or because it died."""
    with suppress(EOFError, OSError):
        stop.recv()
    # An exception in the main thread could end in a callback of SQLite, which drops it. So this thread cleans up.
    for _ in range(_REMOVALS):
        if not remove_folders():
            break
    os._exit(128 + signal.SIGTERM)


def _exit(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


def _measure_in_worker(bench: BenchSet, config: Config, plan: MeasurePlan) -> SetMeasurement:
    def report(done: int, total: int, label: str) -> None:
        _progress_queue.put((bench.name, done, total, label))

    try:
        return measure_set(bench, config, plan, progress=report)
    except SystemExit:  # the pool would report it as a result and wait for the next set
        os._exit(128 + signal.SIGTERM)


def _drain(progress: Any) -> Iterator[tuple[str, int, int, str]]:
    while True:
        try:
            yield progress.get_nowait()
        except queue.Empty:
            return

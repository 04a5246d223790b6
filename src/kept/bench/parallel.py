"""Measures several sets, each in its own process."""

from __future__ import annotations

import multiprocessing
import os
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from typing import Any

from kept.bench.dataset import BenchSet, read_set
from kept.bench.measurement import MeasurePlan, SetMeasurement, measure_set
from kept.bench.threshold import make_foreign_queries
from kept.config import Config
from kept.errors import BenchSetInvalid

Report = Callable[[str, int, int, str], None]
"""Called with the name of a set, the steps done, the steps in total, and a label of the current one."""

_POLL_S = 0.2
_progress: Any = None
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


def default_jobs() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
            measure_set(bench, config, set_plan, progress=_progress_of(bench.name, report))
            for bench, set_plan in zip(sets, plans, strict=True)
        ]
    return _measure_together(sets, config, plans, jobs=min(jobs, len(sets)), report=report)


def _progress_of(name: str, report: Report | None) -> Callable[[int, int, str], None] | None:
    return None if report is None else lambda done, total, label: report(name, done, total, label)


def _measure_together(
    sets: Sequence[BenchSet], config: Config, plans: Sequence[MeasurePlan], *, jobs: int, report: Report | None
) -> list[SetMeasurement]:
    # A spawned process inherits no threads and no locks of this one.
    context = multiprocessing.get_context("spawn")
    measurements: dict[str, SetMeasurement] = {}
    progress = context.Queue()
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker, initargs=(progress,)) as pool:
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
        except BaseException:  # also KeyboardInterrupt: start none of the sets that are left
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [measurements[bench.name] for bench in sets]


def _effort(bench: BenchSet) -> int:
    return sum(len(document.text) for document in bench.documents) + 5_000 * len(bench.queries)


def _start_worker(progress: Any) -> None:
    global _progress
    _progress = progress


def _measure_in_worker(bench: BenchSet, config: Config, plan: MeasurePlan) -> SetMeasurement:
    def report(done: int, total: int, label: str) -> None:
        _progress.put((bench.name, done, total, label))

    return measure_set(bench, config, plan, progress=report)


def _drain(progress: Any) -> Iterator[tuple[str, int, int, str]]:
    while True:
        try:
            yield progress.get_nowait()
        except queue.Empty:
            return

"""Measuring several sets, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from typing import Any

from kept.bench.calibration import make_foreign_queries
from kept.bench.dataset import BenchSet, read_set
from kept.bench.measure import Measured, Plan, measure_set
from kept.config import Config
from kept.errors import BenchSetInvalid

Report = Callable[[str, int, int, str], None]
"""Called with a set's name, completed, total and what is being done."""

_LOOK_EVERY_S = 0.2
_reports: Any = None
"""In a process that measures: where it says how far it is."""


def read_sets(folders: Sequence[str]) -> list[BenchSet]:
    sets = [read_set(folder) for folder in folders]
    names = [bench.name for bench in sets]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BenchSetInvalid(f"Two of the sets are called '{twice}'.", hint="Rename one of the folders.")
    return sets


def default_jobs() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measure_sets(
    sets: Sequence[BenchSet], config: Config, plan: Plan, *, jobs: int, report: Report | None = None
) -> list[Measured]:
    """In the order of the sets, however long each takes."""
    plans = [
        replace(plan, foreign=tuple(make_foreign_queries(bench, [one for one in sets if one is not bench])))
        for bench in sets
    ]
    if jobs == 1 or len(sets) == 1:
        return [
            measure_set(bench, config, own, progress=_for_set(bench.name, report))
            for bench, own in zip(sets, plans, strict=True)
        ]
    return _measure_together(sets, config, plans, jobs=min(jobs, len(sets)), report=report)


def _for_set(name: str, report: Report | None) -> Callable[[int, int, str], None] | None:
    return None if report is None else lambda done, total, label: report(name, done, total, label)


def _measure_together(
    sets: Sequence[BenchSet], config: Config, plans: Sequence[Plan], *, jobs: int, report: Report | None
) -> list[Measured]:
    # A process that is begun anew has no threads and no locks of this one in it.
    context = multiprocessing.get_context("spawn")
    reports = context.Queue()
    found: dict[str, Measured] = {}
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(reports,)) as pool:
        # Those that take longest first, so that no process waits for one that was begun last.
        work = sorted(zip(sets, plans, strict=True), key=lambda pair: -_effort(pair[0]))
        waiting: set[Future[Measured]] = {pool.submit(_measure_one, bench, config, own) for bench, own in work}
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=_LOOK_EVERY_S, return_when=FIRST_COMPLETED)
                for told in _drain(reports):
                    if report is not None:
                        report(*told)
                for one in done:
                    measured = one.result()
                    found[measured.name] = measured
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [found[bench.name] for bench in sets]


def _effort(bench: BenchSet) -> int:
    return sum(len(document.text) for document in bench.documents) + 5_000 * len(bench.queries)


def _begin(reports: Any) -> None:
    global _reports
    _reports = reports


def _measure_one(bench: BenchSet, config: Config, plan: Plan) -> Measured:
    name, reports = bench.name, _reports
    return measure_set(bench, config, plan, progress=lambda done, total, label: reports.put((name, done, total, label)))


def _drain(reports: Any) -> Iterator[tuple[str, int, int, str]]:
    while True:
        try:
            yield reports.get_nowait()
        except queue.Empty:
            return

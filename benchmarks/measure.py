"""Measure a program: CPU time, wall time and peak memory of a child process, as the kernel counts them."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

RUNS = 7


@dataclass(frozen=True, slots=True)
class Cost:
    cpu_s: float
    """User and system time of the child and its children. On a busy machine only this figure is comparable."""
    wall_s: float
    peak_mb: float
    """At least the memory of this process, about 15 MB, because a child starts as a copy of it."""


def run_once(command: Sequence[str], env: Mapping[str, str]) -> tuple[Cost, str]:
    """Run a program to its end. Return its cost and its standard output."""
    started = time.perf_counter()
    with subprocess.Popen(command, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        printed, complaint = child.stdout.read(), child.stderr.read()  # type: ignore[union-attr]
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - started
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}: {complaint.strip() or printed.strip()}")
    per_mb = 1024 if os.uname().sysname == "Linux" else 1024 * 1024
    return Cost(usage.ru_utime + usage.ru_stime, wall_s, usage.ru_maxrss / per_mb), printed


def median_cost(
    command: Sequence[str], env: Mapping[str, str], *, runs: int = RUNS, before: Callable[[], None] | None = None
) -> Cost:
    """Run once to warm the caches, then return the median of several runs. ``before`` prepares each run, unmeasured."""
    costs = []
    for attempt in range(runs + 1):
        if before:
            before()
        cost, _ = run_once(command, env)
        if attempt:
            costs.append(cost)
    return Cost(
        statistics.median(cost.cpu_s for cost in costs),
        statistics.median(cost.wall_s for cost in costs),
        max(cost.peak_mb for cost in costs),
    )

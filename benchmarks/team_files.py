"""Prints what a database as the home of the files costs: the first pull, `kept add`, and a search.

    python -m benchmarks.team_files --notes 3000

CPU times are of the program alone; the server's are printed beside them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from tests.support.file_hosts import FileHost
from tests.support.postgres_server import PostgresServer
from tests.support.teams import Team

KEPT = [os.path.join(os.path.dirname(os.sys.executable), "kept")]  # type: ignore[attr-defined]


def measure(action: object) -> tuple[float, float]:
    """Return the CPU time and the time of an action in this process."""
    cpu, wall = time.process_time(), time.perf_counter()
    action()  # type: ignore[operator]
    return time.process_time() - cpu, time.perf_counter() - wall


def command_cpu(host: FileHost, *args: str, env: dict[str, str], rounds: int) -> float:
    """Return the median CPU time of a command in a new interpreter."""
    times = []
    for number in range(rounds):
        before = os.times()
        arguments = [argument.format(number=number) for argument in args]
        subprocess.run(
            [*KEPT, *arguments], env={**os.environ, **host.environment, **env}, check=True, capture_output=True
        )
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--notes", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    server = PostgresServer()
    team = Team(server)
    with tempfile.TemporaryDirectory() as folder:
        ada, bo = FileHost(Path(folder), team, "ada"), FileHost(Path(folder), team, "bo")
        for number in range(options.notes):
            ada.write(
                f"memory/part{number % 50}/note{number}.md", f"# Note {number}\n\n" + f"word{number} text. " * 120
            )
        for title, action in (
            (f"first send of {options.notes:,} notes", ada.run),
            (f"first pull of {options.notes:,} notes", bo.run),
            ("sync without changes, after the pull (reads every note once)", bo.run),
            ("sync without changes", bo.run),
            ("refresh before a search, nothing new", bo.files.refresh),
        ):
            cpu, wall = measure(action)
            print(f"{title}: {cpu * 1000:,.1f} ms CPU, {wall * 1000:,.1f} ms")
        off = {"KEPT_SYNC__DATABASE__ENABLED": "false"}
        for args in (("add", "A line {number}."), ("search", "word17")):
            subprocess.run([*KEPT, *args], env={**os.environ, **bo.environment}, check=True, capture_output=True)
            with_files = command_cpu(bo, *args, env={}, rounds=options.rounds)
            without = command_cpu(bo, *args, env=off, rounds=options.rounds)
            print(
                f"kept {args[0]}, a new process: {with_files * 1000:,.0f} ms CPU, "
                f"{without * 1000:,.0f} ms with sync.database.enabled off"
            )
        with bo.memory() as memory:
            memory.search("word17")
            cpu, _ = measure(lambda: [memory.search("word17") for _ in range(50)])
        bo.settings["sync.database.enabled"] = False
        with bo.memory() as memory:
            memory.search("word17")
            without, _ = measure(lambda: [memory.search("word17") for _ in range(50)])
        print(f"a search in a running process: {cpu * 20:,.2f} ms CPU, {without * 20:,.2f} ms with it off")
    team.close()
    server.close()


if __name__ == "__main__":
    main()

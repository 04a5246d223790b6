"""Let three gateways of a team answer while everything fails: python -m benchmarks.team_chaos [--minutes 10]

Three gateways with homes of their own answer messages from one PostgreSQL, which has a standby. Gateways are killed,
connections are ended, and in the middle the primary is killed and the standby promoted. Every accepted message has to
be answered once, and those of each user in order.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psycopg

from kept.postgres.database import Database
from kept.postgres.schema_migrations import migrate
from tests.support.postgres_server import UNPRIVILEGED, find_programs, start_server, stop_server
from tests.support.team_gateways import GatewayHost, count_wrong, wait_for_answers

SCHEMA = "chaos"
USERS = [f"user{number}" for number in range(9)]
EVENT_EVERY_S = 8.0


class ReplicatedServer:
    """A primary and a standby. A commit waits for both, so that a failover loses nothing that was confirmed."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        self._folder = folder
        self.primary = start_server(folder / "one", folder / "s1", folder / "log1", synchronous_commit="on")
        self._copy_primary()
        self.standby = start_server(folder / "two", folder / "s2", folder / "log2", synchronous_commit="on")
        self._run("s1", "ALTER SYSTEM SET synchronous_standby_names = '*'")
        self._run("s1", "SELECT pg_reload_conf()")
        hosts = f"{folder / 's1'},{folder / 's2'}"
        self.url = f"postgresql://postgres@/postgres?host={hosts}&target_session_attrs=read-write"

    def _copy_primary(self) -> None:
        user = UNPRIVILEGED if os.geteuid() == 0 else None
        data = self._folder / "two"
        data.mkdir(mode=0o700)
        if user:
            subprocess.run(["chown", user, data], check=True)
        program = find_programs(self._folder) / "pg_basebackup"
        subprocess.run(
            [program, "-D", data, "-h", self._folder / "s1", "-U", "postgres", "-R", "--no-sync", "-c", "fast"],
            check=True,
            user=user,
            cwd=data,
        )

    def fail_over(self) -> None:
        self.primary.kill()
        self.primary.wait()
        self._run("s2", "SELECT pg_promote()")

    def end_connections(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", [f"kept {SCHEMA}"]
            )

    def close(self) -> None:
        for server in (self.primary, self.standby):
            if server.poll() is None:
                stop_server(server)

    def _run(self, sockets: str, statement: str) -> None:
        url = f"postgresql://postgres@/postgres?host={self._folder / sockets}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement.encode())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.team_chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="duration (default: 10)")
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory(prefix="kept-chaos-") as name:
        server = ReplicatedServer(Path(name))
        try:
            figures = run(server, Path(name), minutes * 60)
        finally:
            server.close()
    for label, figure in figures.items():
        print(f"{label:32} {figure}")
    sys.exit(any(figures[wrong] for wrong in ("lost", "twice", "out of order")))


def run(server: ReplicatedServer, folder: Path, duration_s: float) -> dict[str, object]:
    database = Database(server.url, SCHEMA)
    migrate(database, create=True)
    environment = {
        "KEPT_MEMORY_SEARCH__STORE__DRIVER": "postgres",
        "KEPT_MEMORY_SEARCH__STORE__URL": server.url,
        "KEPT_MEMORY_SEARCH__STORE__SCHEMA": SCHEMA,
    }
    hosts = [GatewayHost(folder / name, environment) for name in ("a", "b", "c")]
    chance = random.Random(7)
    accepted: list[str] = []
    waits: list[float] = []
    events: Counter[str] = Counter()
    began = time.monotonic()
    next_event = began + EVENT_EVERY_S
    while time.monotonic() - began < duration_s:
        user = chance.choice(USERS)
        message_id = f"{len(accepted)}-{user}"
        started = time.monotonic()
        while not chance.choice(hosts).post(user, message_id):
            events["not accepted, sent again"] += 1
            time.sleep(0.05)
        waits.append(time.monotonic() - started)
        accepted.append(message_id)
        if time.monotonic() >= next_event:
            next_event = time.monotonic() + EVENT_EVERY_S
            is_half = time.monotonic() - began > duration_s / 2
            events[make_trouble(server, hosts, chance, may_fail_over=is_half and not events["failover"])] += 1
        time.sleep(chance.uniform(0, 0.7))  # the inbox keeps 2,000 answers, and all of them are looked at
    inbox = wait_for_answers(database)
    for host in hosts:
        host.kill()
    wrong = count_wrong(inbox, accepted)
    database.close()
    return {
        "messages accepted": len(accepted),
        **wrong,
        **events,
        "median until accepted, ms": round(statistics.median(waits) * 1000),
        "longest until accepted, s": round(max(waits), 1),
    }


def make_trouble(
    server: ReplicatedServer, hosts: list[GatewayHost], chance: random.Random, *, may_fail_over: bool
) -> str:
    """Let something fail. Return what."""
    if may_fail_over:
        server.fail_over()
        return "failover"
    if chance.random() < 0.5:
        server.end_connections()
        return "all connections ended"
    victim = chance.choice(hosts)
    victim.kill()
    victim.start()
    return "gateway killed"


if __name__ == "__main__":
    main()

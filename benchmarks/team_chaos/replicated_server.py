"""A PostgreSQL server with a standby, which takes its place."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import psycopg

from tests.support.postgres_server import UNPRIVILEGED, find_programs, start_server, stop_server

_SETTINGS = {
    "synchronous_commit": "on",
    "wal_retrieve_retry_interval": "200ms",
    "deadlock_timeout": "200ms",
    "log_lock_waits": "on",
    "lock_timeout": "0",
}
_ENDED_S = 30


class ReplicatedServer:
    """A primary and a standby. If ``synchronous``, a commit waits for both, so that a failover loses nothing that was
    confirmed. All of it belongs to the thread that made it: the servers end with that."""

    def __init__(self, folder: Path, application: str, *, synchronous: bool) -> None:
        folder.chmod(0o755)
        self._folder = folder
        self._application = application
        self._synchronous = synchronous
        self._names = ["one", "two"]
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        hosts = ",".join(str(self._sockets(name)) for name in self._names)
        self.url = f"postgresql://postgres@/postgres?host={hosts}&target_session_attrs=read-write"
        self._start(self._names[0])
        self.add_standby()

    @property
    def _primary(self) -> str:
        return self._names[0]

    @property
    def _standby(self) -> str:
        return self._names[1]

    def _sockets(self, name: str) -> Path:
        return self._folder / f"s-{name}"

    def _start(self, name: str) -> None:
        log = self._folder / f"log-{name}"
        self._servers[name] = start_server(self._folder / name, self._sockets(name), log, **_SETTINGS)

    def add_standby(self) -> None:
        """Copy the primary, and let the copy follow it."""
        user = UNPRIVILEGED if os.geteuid() == 0 else None
        data = self._folder / self._standby
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir(mode=0o700)
        if user:
            shutil.chown(data, user)
        program = find_programs(self._folder) / "pg_basebackup"
        options = ["-h", self._sockets(self._primary), "-U", "postgres", "-R", "--no-sync", "-c", "fast"]
        subprocess.run([program, "-D", data, *options], check=True, user=user, cwd=data)
        self._start(self._standby)
        self._configure(self._primary, "synchronous_standby_names", "*" if self._synchronous else "")

    # faults

    def fail_over(self) -> None:
        """Kill the primary, and promote the standby. Unless it is synchronous, it lacks the last moments."""
        if not self._synchronous:
            self._configure(self._standby, "primary_conninfo", "")
            self._run(self._primary, "SELECT pg_sleep(0.7)")  # meanwhile it commits what the standby does not get
        server = self._servers.pop(self._primary)
        server.kill()
        server.wait(_ENDED_S)
        self._run(self._standby, "SELECT pg_promote()")
        self._names.reverse()
        self._configure(self._primary, "synchronous_standby_names", "")

    def _configure(self, name: str, setting: str, value: str) -> None:
        self._run(name, f"ALTER SYSTEM SET {setting} = '{value}'")
        self._run(name, "SELECT pg_reload_conf()")

    def restart(self) -> None:
        """Stop the primary at once, and start it again: it recovers from its log."""
        stop_server(self._servers.pop(self._primary))
        self._start(self._primary)

    def end_connections(self, chance: random.Random, share: float) -> int:
        """End a share of the connections of Kept. Return how many."""
        with self._connect(self._primary) as connection:
            rows = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name = %s", [self._application]
            ).fetchall()
            pids = [pid for (pid,) in rows if chance.random() < share]
            connection.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) pid", [pids])
        return len(pids)

    # results

    def count_deadlocks(self) -> int:
        logs = (self._folder / f"log-{name}" for name in self._names)
        return sum(log.read_text(errors="replace").count("deadlock detected") for log in logs)

    def waiting_backends(self) -> list[str]:
        """Return the statements that have waited long for a lock."""
        query = (
            "SELECT left(query, 200) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND query_start < clock_timestamp() - interval '20 s'"
        )
        with self._connect(self._primary) as connection:
            return [str(text) for (text,) in connection.execute(query).fetchall()]

    def close(self) -> None:
        for server in self._servers.values():
            stop_server(server)

    def _connect(self, name: str) -> psycopg.Connection:
        return psycopg.connect(f"postgresql://postgres@/postgres?host={self._sockets(name)}", autocommit=True)

    def _run(self, name: str, statement: str) -> None:
        with self._connect(name) as connection:
            connection.execute(statement.encode())

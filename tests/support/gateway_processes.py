"""Start gateways as separate processes."""

import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

from tests.support.serve_process import ServerProcess

PROGRAM = Path(__file__).with_name("gateway_program.py")


class Process(ServerProcess):
    """A running gateway."""

    def __init__(self, tmp_path: Path, *settings: str, command: tuple[str, ...] = (), **env: str) -> None:
        super().__init__(tmp_path, *(command or (sys.executable, str(PROGRAM), *settings)), **env)

    def url(self) -> str:
        return self.wait_for("HTTP: ").split()[1].rstrip(",").removesuffix("/v1/messages")


class ForkedProcess(Process):
    """A gateway forked from a process that has imported everything, which makes it cheap to start many."""

    def _start(self, command: tuple[str, ...], environment: dict[str, str]) -> Any:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(
            ["tests.support.gateway_program", "uvicorn", "starlette.applications", "telegram.ext"]
        )
        return _Fork(context, environment, command[2:])


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

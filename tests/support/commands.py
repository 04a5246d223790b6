"""Run the real `kept` command in a process of its own: a fork of one that has imported it, or a new interpreter."""

import contextlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

from tests.support.command_forks import KEPT, Fork, start_fork

TIMEOUT_S = 120
PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


@dataclass(frozen=True)
class Outcome:
    """The exit code and output of a finished command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run_kept(*args: str | Path, stdin: str | bytes = b"", env: dict[str, str], cwd: Path) -> Outcome:
    """Run the command to its end."""
    (stdin_end, our_input), (our_output, stdout_end), (our_errors, stderr_end) = os.pipe(), os.pipe(), os.pipe()
    streams = stdin_end, stdout_end, stderr_end
    run = start_on(streams, *args, env=env, cwd=cwd)
    for stream in streams:
        os.close(stream)
    with ThreadPoolExecutor(2) as pool:
        output, errors = pool.submit(_read, our_output), pool.submit(_read, our_errors)
        with contextlib.suppress(BrokenPipeError), open(our_input, "wb") as file:
            file.write(stdin.encode() if isinstance(stdin, str) else stdin)
        code = run.wait(TIMEOUT_S)
        return Outcome(code, output.result().decode(), errors.result().decode())


def start_on(streams, *args: str | Path, env, cwd) -> Fork | subprocess.Popen[bytes]:
    """Start the command with these standard streams. Its interpreter is a new one only if the environment has variables
    for an interpreter that starts."""
    arguments = [str(argument) for argument in args]
    fork = start_fork(arguments, env=env, cwd=cwd, streams=streams)
    if fork is not None:
        return fork
    stdin, stdout, stderr = streams
    return subprocess.Popen([KEPT, *arguments], stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd)


def _read(stream: int) -> bytes:
    with open(stream, "rb") as file:
        return file.read()


def start_kept(tmp_path: Path, *args: str, **options: Any) -> subprocess.Popen[str]:
    """Start the command and return at once. ``options`` go to `subprocess.Popen`."""
    return subprocess.Popen([KEPT, *args], env=kept_environment(tmp_path), **PIPES, **options)


def run_python(code: str, *args: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter of its own to its end. ``options`` go to `subprocess.run`."""
    command = [sys.executable, "-c", dedent(code), *args]
    return subprocess.run(command, **{"capture_output": True, "text": True, "timeout": TIMEOUT_S, **options})


def start_python(code: str, *args: str | Path, **options: Any) -> subprocess.Popen[str]:
    """Start a program in an interpreter of its own and return at once. ``options`` go to `subprocess.Popen`."""
    command = [sys.executable, "-c", dedent(code), *args]
    return subprocess.Popen(command, **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, **options})


def kept_environment(tmp_path: Path) -> dict[str, str]:
    """Return a minimal environment: PATH, home and workspace below tmp_path."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "KEPT_HOME": str(tmp_path / "home"),
        "KEPT_WORKSPACE": str(tmp_path / "workspace"),
    }

"""Runs a program for its standard output: no shell, limits of time and output, no processes left over."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from kept.errors import BackendFailed

MAX_OUTPUT_BYTES = 8_000_000
_MAX_ERROR_BYTES = 4_000
_READ_BYTES = 65_536


def find_program(command: str, *, hint: str) -> str:
    """Return the absolute path of a program that is named or given by path. Raise BackendFailed if there is none."""
    path = shutil.which(os.path.expanduser(command))
    if path is None:
        raise BackendFailed(f"the program '{command}' is not installed.", hint=hint)
    return os.path.abspath(path)


def run_program(command: Sequence[str], *, env: Mapping[str, str], cwd: str, timeout_s: float) -> bytes:
    """Return the standard output. The program and its children are killed if it takes too long or prints too much."""
    name = os.path.basename(command[0])
    try:
        process = subprocess.Popen(
            command,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a new process group, which can be killed as one
        )
    except (OSError, ValueError) as exc:
        raise BackendFailed(f"{name} could not be started ({exc}).") from exc
    try:
        output, errors = _read(process, name, timeout_s)
    finally:
        _kill_group(process)
    if process.returncode:
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        reason = f": {lines[-1][:300]}" if lines else ", without a message."
        raise BackendFailed(f"{name} failed with exit code {process.returncode}{reason}")
    return output


def _read(process: subprocess.Popen[bytes], name: str, timeout_s: float) -> tuple[bytes, bytes]:
    """Read output and errors until the program ends. Keep only the last part of the errors."""
    deadline_s = time.monotonic() + timeout_s
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, output)
        selector.register(process.stderr, selectors.EVENT_READ, errors)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline_s - time.monotonic()))
            if not ready and time.monotonic() >= deadline_s:
                raise BackendFailed(f"{name} did not answer within {timeout_s:g} s.")
            for key, _ in ready:
                piece = os.read(key.fd, _READ_BYTES)
                if not piece:
                    selector.unregister(key.fileobj)
                key.data.extend(piece)
            del errors[:-_MAX_ERROR_BYTES]
            if len(output) > MAX_OUTPUT_BYTES:
                raise BackendFailed(f"{name} printed more than {MAX_OUTPUT_BYTES:,} bytes.")
    try:
        process.wait(max(0.0, deadline_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise BackendFailed(f"{name} did not end within {timeout_s:g} s.") from None
    return bytes(output), bytes(errors)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the program and its children, including those that outlived it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()

"""Running a program that answers on its standard output: no shell, a limit of time and of output, and nothing left
running behind."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from kept.errors import BackendFailed

MAX_OUTPUT = 8_000_000
_MAX_COMPLAINT = 4_000
_READ = 65_536


def find_program(command: str, *, hint: str) -> str:
    """Where a program is, by its name or path."""
    found = shutil.which(os.path.expanduser(command))
    if found is None:
        raise BackendFailed(f"the program '{command}' is not installed.", hint=hint)
    return os.path.abspath(found)


def run_program(command: Sequence[str], *, env: Mapping[str, str], cwd: str, timeout_s: float) -> bytes:
    """What it prints. It and whatever it has started are killed when it takes too long or prints too much."""
    name = os.path.basename(command[0])
    try:
        process = subprocess.Popen(
            command,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a group of its own, which can be killed as one
        )
    except (OSError, ValueError) as exc:
        raise BackendFailed(f"{name} could not be started ({exc}).") from exc
    try:
        printed, complaint = _read(process, name, timeout_s)
    finally:
        _end(process)
    if process.returncode:
        told = complaint.decode("utf-8", "replace").strip().splitlines()
        why = f": {told[-1][:300]}" if told else ", and did not say why."
        raise BackendFailed(f"{name} failed with exit code {process.returncode}{why}")
    return printed


def _read(process: subprocess.Popen[bytes], name: str, timeout_s: float) -> tuple[bytes, bytes]:
    deadline = time.monotonic() + timeout_s
    assert process.stdout is not None
    assert process.stderr is not None
    printed, complaint = bytearray(), bytearray()
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ, printed)
        waiting.register(process.stderr, selectors.EVENT_READ, complaint)
        while waiting.get_map():
            ready = waiting.select(max(0.0, deadline - time.monotonic()))
            if not ready and time.monotonic() >= deadline:
                raise BackendFailed(f"{name} did not answer within {timeout_s:g} s.")
            for key, _ in ready:
                piece = os.read(key.fd, _READ)
                if not piece:
                    waiting.unregister(key.fileobj)
                key.data.extend(piece)
            del complaint[:-_MAX_COMPLAINT]
            if len(printed) > MAX_OUTPUT:
                raise BackendFailed(f"{name} printed more than {MAX_OUTPUT:,} bytes.")
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise BackendFailed(f"{name} did not end within {timeout_s:g} s.") from None
    return bytes(printed), bytes(complaint)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Also what it left running when it ended by itself: nobody else would."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()

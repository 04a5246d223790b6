"""Run a program: write its input, read its output line by line, and stop it together with its children."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress

from kept.errors import ModelFailed
from kept.values import frozen

_STDERR_BYTES = 4_000
_GRACE_S = 2.0
_STDOUT, _STDERR = 1, 2


@frozen
class OutputLimits:
    """Size above which output cannot be an answer."""

    total_bytes: int = 64_000_000
    line_bytes: int = 16_000_000


OUTPUT_LIMITS = OutputLimits()


@frozen
class ProcessExit:
    """Last item of a program's output: its exit code and the end of its standard error."""

    code: int
    stderr: str


async def run_lines(
    command: Sequence[str],
    *,
    stdin: bytes,
    env: Mapping[str, str],
    cwd: str,
    label: str,
    limits: OutputLimits = OUTPUT_LIMITS,
) -> AsyncGenerator[bytes | ProcessExit, None]:
    """Yield the lines of a program's output, then its exit. Closing the generator stops the program.

    Raise OSError if the program cannot be started, and ModelFailed if it writes more than the limits allow.
    """
    transport, output = await asyncio.get_running_loop().subprocess_exec(
        lambda: _ProcessOutput(limits.total_bytes),
        *command,
        env=dict(env),
        cwd=cwd,
        start_new_session=True,  # a process group, so that its children can be stopped too
    )
    try:
        feed = transport.get_pipe_transport(0)
        assert isinstance(feed, asyncio.WriteTransport)
        feed.write(stdin)
        feed.close()  # after what is buffered has been written
        async for line in _split_lines(output, label, limits):
            yield line
        await output.exited.wait()
        await output.stderr_ended.wait()
        yield ProcessExit(transport.get_returncode() or 0, output.stderr.decode("utf-8", "replace"))
    finally:
        await asyncio.shield(_stop(transport, output))


class _ProcessOutput(asyncio.SubprocessProtocol):
    """Output of a running program, as it arrives."""

    def __init__(self, max_bytes: int) -> None:
        self.stdout: asyncio.Queue[bytes] = asyncio.Queue()
        """Pieces of standard output. An empty one marks its end."""
        self.stderr = b""
        self.exited = asyncio.Event()
        self.stderr_ended = asyncio.Event()
        self.pipes_closed = asyncio.Event()
        self._max_bytes = max_bytes
        self._total = 0

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDERR:
            self.stderr = (self.stderr + data)[-_STDERR_BYTES:]
        elif self._total <= self._max_bytes:  # one piece above the limit is enough for the reader to refuse it
            self._total += len(data)
            self.stdout.put_nowait(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == _STDOUT:
            self.stdout.put_nowait(b"")
        elif fd == _STDERR:
            self.stderr_ended.set()

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.pipes_closed.set()


async def _split_lines(output: _ProcessOutput, label: str, limits: OutputLimits) -> AsyncGenerator[bytes, None]:
    total, rest = 0, bytearray()
    while piece := await output.stdout.get():
        total += len(piece)
        rest += piece
        if total > limits.total_bytes or len(rest) > limits.line_bytes:
            raise ModelFailed(f"{label} wrote more than can be an answer.", hint="Check model.program.")
        if b"\n" in piece:
            *lines, tail = rest.split(b"\n")
            rest = bytearray(tail)
            for line in lines:
                yield bytes(line)
    if rest:
        yield bytes(rest)


async def _stop(transport: asyncio.SubprocessTransport, output: _ProcessOutput) -> None:
    """Terminate the process group, then kill it. Also after a normal exit: it may have left a child running."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(transport.get_pid(), number)
        if not output.exited.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(output.exited.wait(), _GRACE_S)
    # A child in another session may still have the pipes open. Nothing may be left open when the event loop ends.
    transport.close()
    with suppress(TimeoutError):
        await asyncio.wait_for(output.pipes_closed.wait(), _GRACE_S)

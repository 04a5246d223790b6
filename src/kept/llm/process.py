"""Running another program: given its input, read line by line, and stopped with everything it started."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress

from kept.errors import ModelFailed
from kept.values import frozen

MAX_OUTPUT_BYTES = 64_000_000
MAX_LINE_BYTES = 16_000_000
_STDERR_KEPT = 4_000
_READ_BYTES = 65_536
_GRACE_S = 2.0


@frozen
class ProcessExit:
    """The last that comes from a program: how it ended, and the end of what it complained about."""

    code: int
    stderr: str


async def run_lines(
    command: Sequence[str], *, stdin: bytes, env: Mapping[str, str], cwd: str, label: str
) -> AsyncGenerator[bytes | ProcessExit, None]:
    """The lines of its output, and then how it ended. Whoever stops listening stops the program."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(env),
        cwd=cwd,
        start_new_session=True,  # a group of its own, so that all of it can be stopped
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    feeding = asyncio.create_task(_feed(process.stdin, stdin))
    complaining = asyncio.create_task(_read_end(process.stderr))
    try:
        async for line in _lines(process.stdout, label):
            yield line
        yield ProcessExit(await process.wait(), await complaining)
    finally:
        await asyncio.shield(_stop(process, feeding, complaining))


async def _feed(pipe: asyncio.StreamWriter, data: bytes) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):  # it has read enough
        pipe.write(data)
        await pipe.drain()
    pipe.close()
    with suppress(BrokenPipeError, ConnectionResetError):
        await pipe.wait_closed()


async def _read_end(pipe: asyncio.StreamReader) -> str:
    kept = b""
    while piece := await pipe.read(_READ_BYTES):
        kept = (kept + piece)[-_STDERR_KEPT:]
    return kept.decode("utf-8", "replace")


async def _lines(pipe: asyncio.StreamReader, label: str) -> AsyncGenerator[bytes, None]:
    total, held = 0, bytearray()
    while piece := await pipe.read(_READ_BYTES):
        total += len(piece)
        held += piece
        if total > MAX_OUTPUT_BYTES or len(held) > MAX_LINE_BYTES:
            raise ModelFailed(f"{label} wrote more than can be an answer.", hint="Check model.program.")
        if b"\n" in piece:
            *whole, rest = held.split(b"\n")
            held = bytearray(rest)
            for line in whole:
                yield bytes(line)
    if held:
        yield bytes(held)


async def _stop(process: asyncio.subprocess.Process, *tasks: asyncio.Task[object]) -> None:
    """Asks the whole group to end, and then makes it. Also after a good end: it may have left something running."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        if process.returncode is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _GRACE_S)
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError, OSError):
            await task
    # Its pipes are closed by the loop once their ends are; nothing may be left open when the loop ends.
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()

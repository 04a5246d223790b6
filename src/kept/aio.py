"""The memory for asyncio: each call runs in a thread, so the event loop goes on meanwhile.

from kept.aio import AsyncMemory

async with AsyncMemory.open("~/notes") as memory:
    await memory.add("The staging database moved to port 5433.")
    result = await memory.search("which port is staging on?")
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import Any

from kept.errors import UsageError
from kept.memory import Memory

_PARTS = ("notes", "history", "review", "forgetting")
_WRITES = ("add", "sync", "undo", "accept", "reject", "apply", "finish")
_READERS = 4


class _Threads:
    """Threads of one memory: one for writes, which keep their order, and a few for everything else."""

    def __init__(self) -> None:
        self.is_closed = False
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="kept-write")
        self.readers = ThreadPoolExecutor(_READERS, thread_name_prefix="kept-read")


class AsyncPart:
    """Object whose methods run the methods of another one in threads."""

    def __init__(self, target: object, threads: _Threads) -> None:
        self._target = target
        self._threads = threads

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name) if not name.startswith("_") else None
        if not callable(method):
            raise AttributeError(f"{type(self).__name__} has no method '{name}'")

        @wraps(method)
        async def call(*args: Any, **options: Any) -> Any:
            if self._threads.is_closed:
                raise UsageError("The memory is closed.", hint="Open it again with AsyncMemory.open().")
            threads = self._threads.writer if name in _WRITES else self._threads.readers
            value = await asyncio.get_running_loop().run_in_executor(threads, partial(method, *args, **options))
            return AsyncMemory(value) if isinstance(value, Memory) else value

        return call


class AsyncMemory(AsyncPart):
    """A `Memory` whose methods are coroutines, with the same arguments and results, and so are those of its parts:
    `notes`, `history`, `review` and `forgetting`.

    Calls that write run one after the other in one thread, in the order of the calls; the others run beside them. A
    call that is cancelled still runs to its end in its thread. ``memory`` is the memory itself.
    """

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory, _Threads())
        self.memory = memory

    @classmethod
    def open(cls, *args: Any, **options: Any) -> AsyncMemory:
        """Open the memory of an agent, with the arguments of `Memory.open`. Only settings are read."""
        return cls(Memory.open(*args, **options))

    def __getattr__(self, name: str) -> Any:
        if name in _PARTS:
            return AsyncPart(getattr(self.memory, name), self._threads)
        return super().__getattr__(name)

    async def __aenter__(self) -> AsyncMemory:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Wait for running calls and close the memory. Every later use raises UsageError."""
        self._threads.is_closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._threads.writer.shutdown()
        self._threads.readers.shutdown()
        self.memory.close()

"""The memory for asyncio: each call runs in a thread, so the event loop goes on meanwhile.

from kept.aio import AsyncMemory

async with AsyncMemory.open("~/notes") as memory:
    await memory.add("The staging database moved to port 5433.")
    result = await memory.search("which port is staging on?")
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from kept.errors import UsedAfterClose
from kept.memory import Memory

P = ParamSpec("P")
T = TypeVar("T")

_READERS = 4


def _in_thread(
    method: Callable[Concatenate[Memory, P], T], *, writes: bool = False
) -> Callable[Concatenate[AsyncMemory, P], Coroutine[Any, Any, T]]:
    """Return a method of `AsyncMemory` that awaits the same method of `Memory`."""

    @wraps(method)
    async def call(self: AsyncMemory, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._is_closed:
            raise UsedAfterClose("The memory is closed.", hint="Open it again with AsyncMemory.open().")
        executor = self._writer if writes else self._readers
        action = partial(method, self.memory, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(executor, action)

    return call


class AsyncMemory:
    """A `Memory` whose methods are coroutines, with the same arguments and results.

    ``add``, ``undo``, ``sync`` and ``forget`` run one after the other in one thread, in the order of the calls; the
    others run beside them. A call that is cancelled still runs to its end in its thread. ``memory`` is the memory
    itself.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._is_closed = False
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="kept-write")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="kept-read")

    @classmethod
    def open(cls, *args: Any, **options: Any) -> AsyncMemory:
        """Open the memory of an agent, with the arguments of `Memory.open`. Only settings are read."""
        return cls(Memory.open(*args, **options))

    add = _in_thread(Memory.add, writes=True)
    sync = _in_thread(Memory.sync, writes=True)
    forget = _in_thread(Memory.forget, writes=True)
    finish_forget = _in_thread(Memory.finish_forget, writes=True)
    plan_forget = _in_thread(Memory.plan_forget)
    undo = _in_thread(Memory.undo, writes=True)
    read = _in_thread(Memory.read)
    changes = _in_thread(Memory.changes)
    diff = _in_thread(Memory.diff)
    recorder = _in_thread(Memory.recorder)
    search = _in_thread(Memory.search)
    list = _in_thread(Memory.list)
    tags = _in_thread(Memory.tags)
    links = _in_thread(Memory.links)
    broken_links = _in_thread(Memory.broken_links)
    find_project = _in_thread(Memory.find_project)
    preview = _in_thread(Memory.preview)
    status = _in_thread(Memory.status)
    as_person = _in_thread(Memory.as_person)
    seen_by = _in_thread(Memory.seen_by)

    async def __aenter__(self) -> AsyncMemory:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Wait for running calls and close the memory. Every later use raises UsedAfterClose."""
        self._is_closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._writer.shutdown()
        self._readers.shutdown()
        self.memory.close()

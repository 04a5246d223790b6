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
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from kept.errors import UsedAfterClose
from kept.forgetting.forgetter import MemoryForgetting
from kept.memory import Memory
from kept.memory_history import MemoryHistory
from kept.memory_notes import MemoryNotes
from kept.review.review_queue import ReviewQueue

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")

_READERS = 4


class _Threads:
    """Threads of one memory: one for writes, which keep their order, and a few for everything else."""

    def __init__(self) -> None:
        self.is_closed = False
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="kept-write")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="kept-read")

    async def run(self, action: Callable[[], T], *, writes: bool) -> T:
        if self.is_closed:
            raise UsedAfterClose("The memory is closed.", hint="Open it again with AsyncMemory.open().")
        return await asyncio.get_running_loop().run_in_executor(self._writer if writes else self._readers, action)

    def close(self) -> None:
        self._writer.shutdown()
        self._readers.shutdown()


class _InThreads(Generic[S]):
    """Object whose methods run the methods of another one in threads. ``find`` returns that one, in the thread."""

    def __init__(self, find: Callable[[], S], threads: _Threads) -> None:
        self._find = find
        self._threads = threads


def _in_thread(
    method: Callable[Concatenate[S, P], T], *, writes: bool = False
) -> Callable[Concatenate[_InThreads[S], P], Coroutine[Any, Any, T]]:
    """Return a method that awaits the same method of the other object."""

    @wraps(method)
    async def call(self: _InThreads[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._threads.run(lambda: method(self._find(), *args, **kwargs), writes=writes)

    return call


class AsyncNotes(_InThreads[MemoryNotes]):
    """`Memory.notes` with coroutines: tags, links and projects of the notes."""

    tags = _in_thread(MemoryNotes.tags)
    links = _in_thread(MemoryNotes.links)
    name_nearest = _in_thread(MemoryNotes.name_nearest)
    broken_links = _in_thread(MemoryNotes.broken_links)
    find_project = _in_thread(MemoryNotes.find_project)


class AsyncHistory(_InThreads[MemoryHistory]):
    """`Memory.history` with coroutines: who changed what, when and why, and undo."""

    changes = _in_thread(MemoryHistory.changes)
    diff = _in_thread(MemoryHistory.diff)
    undo = _in_thread(MemoryHistory.undo, writes=True)
    open_recorder = _in_thread(MemoryHistory.open_recorder)


class AsyncReview(_InThreads[ReviewQueue]):
    """`Memory.review` with coroutines: writes of agents that wait for a person."""

    list = _in_thread(ReviewQueue.list)
    count = _in_thread(ReviewQueue.count)
    get = _in_thread(ReviewQueue.get)
    preview = _in_thread(ReviewQueue.preview)
    accept = _in_thread(ReviewQueue.accept, writes=True)
    reject = _in_thread(ReviewQueue.reject, writes=True)


class AsyncForgetting(_InThreads[MemoryForgetting]):
    """`Memory.forgetting` with coroutines: plan a forget, then apply the plan."""

    plan = _in_thread(MemoryForgetting.plan)
    apply = _in_thread(MemoryForgetting.apply, writes=True)
    finish = _in_thread(MemoryForgetting.finish, writes=True)


class AsyncMemory(_InThreads[Memory]):
    """A `Memory` whose methods are coroutines, with the same arguments and results.

    Calls that write run one after the other in one thread, in the order of the calls; the others run beside them. A
    call that is cancelled still runs to its end in its thread. ``memory`` is the memory itself.
    """

    def __init__(self, memory: Memory) -> None:
        super().__init__(lambda: memory, _Threads())
        self.memory = memory
        self.notes = AsyncNotes(lambda: memory.notes, self._threads)
        self.history = AsyncHistory(lambda: memory.history, self._threads)
        self.review = AsyncReview(lambda: memory.review, self._threads)
        self.forgetting = AsyncForgetting(lambda: memory.forgetting, self._threads)

    @classmethod
    def open(cls, *args: Any, **options: Any) -> AsyncMemory:
        """Open the memory of an agent, with the arguments of `Memory.open`. Only settings are read."""
        return cls(Memory.open(*args, **options))

    add = _in_thread(Memory.add, writes=True)
    sync = _in_thread(Memory.sync, writes=True)
    read = _in_thread(Memory.read)
    search = _in_thread(Memory.search)
    list = _in_thread(Memory.list)
    preview = _in_thread(Memory.preview)
    status = _in_thread(Memory.status)
    as_person = _in_thread(Memory.as_person)

    async def __aenter__(self) -> AsyncMemory:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Wait for running calls and close the memory. Every later use raises UsedAfterClose."""
        self._threads.is_closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._threads.close()
        self.memory.close()

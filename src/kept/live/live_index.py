"""LiveIndex: a thread that keeps the index current as long as a program runs."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from types import TracebackType

from kept.errors import KeptError
from kept.indexing.service import IndexService
from kept.live.leader import LeaderLoop, describe_unexpected
from kept.live.leadership import Leadership, lock_path
from kept.live.reporting import LiveEvent, LiveReporter, LiveState
from kept.live.schedule import LiveTiming
from kept.memory import Memory
from kept.sqlite import register_forkable

log = logging.getLogger(__name__)


class LiveIndex:
    """Keeps the index of a memory current in the background.

    >>> with Memory.open("~/notes") as memory, LiveIndex(memory):
    ...     serve(memory)

    Of all processes that do this for one index, one does the work. The rest stand by; when that one is gone, however
    it ended, one of them takes over within about a second. The thread has its own connection, so searches do not wait
    for it. Nothing here raises: a problem is in `state()`, and is retried.

    ``watch`` tells whether to watch for changes (default: ``memory_search.sync.watch``). Otherwise the index is
    synced at the start and by the interval. ``listener`` is called with events, from the thread.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        watch: bool | None = None,
        listener: Callable[[LiveEvent], None] | None = None,
        timing: LiveTiming | None = None,
    ) -> None:
        self._memory = memory
        self._watches = memory.settings.sync.watch if watch is None else watch
        self._timing = timing or LiveTiming()
        self._reporter = LiveReporter(listener)
        self._leadership = Leadership(lock_path(memory.config))
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        register_forkable(self)

    def after_fork(self) -> None:
        """In a forked child, drop the thread and the lead, which are the parent's. The child can start its own."""
        self._reporter.reset()
        self._thread = None
        self._stop, self._ready = threading.Event(), threading.Event()
        self._leadership = Leadership(self._leadership.path)

    def start(self) -> LiveIndex:
        if self._thread is None:
            self._stop.clear()
            self._reporter.update(role="starting")
            self._thread = threading.Thread(target=self._run, name="kept-live-index", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """End the thread. A running sync ends after its current batch of files; nothing is left half done."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self._timing.stop_wait_s)
        self._thread = None

    def __enter__(self) -> LiveIndex:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def state(self) -> LiveState:
        return self._reporter.state()

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the first sync is done, or another process has the lead."""
        return self._ready.wait(timeout_s)

    # the thread

    def _run(self) -> None:
        try:
            service = self._memory.index_service.clone()
        except KeptError as exc:  # the settings name an unknown provider
            self._reporter.report_problem(exc.message)
            self._reporter.set_role("stopped")
            self._ready.set()
            return
        try:
            while not self._stop.is_set():
                if not self._take_lead() or not self._lead(service):
                    self._stop.wait(self._timing.tick_s)
        finally:
            self._leadership.release()
            service.close()
            self._reporter.set_role("stopped")

    def _take_lead(self) -> bool:
        try:
            leads = self._leadership.take()
        except KeptError as exc:  # the home is not writable
            self._reporter.report_problem(exc.message)
            return False
        if leads:
            self._reporter.set_role("leader", leader_pid=os.getpid())
        else:
            self._reporter.set_role("standby", leader_pid=self._leadership.find_leader())
            self._ready.set()
        return leads

    def _lead(self, service: IndexService) -> bool:
        """Lead until the lead ends. Return whether it ended in order; after an error a new lead begins, perhaps in
        another process."""
        loop = LeaderLoop(
            service,
            self._leadership,
            self._reporter,
            self._timing,
            stop=self._stop,
            ready=self._ready,
            watches=self._watches,
        )
        try:
            loop.run()
        except Exception as exc:  # the thread must survive whatever one lead meets
            log.info("leading failed", exc_info=True)
            self._reporter.report_problem(str(exc) if isinstance(exc, KeptError) else describe_unexpected(exc))
            return False
        return True

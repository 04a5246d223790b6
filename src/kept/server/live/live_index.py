"""LiveIndex: a thread that keeps the index current as long as a program runs.

Others see its state and its events. Of several processes, the one that holds a lock is the leader and keeps the index
current. It waits for changes and syncs when a sync is due, until the lead is lost. The kernel drops the lock when the
process ends.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from kept.base.durable import make_private_folder
from kept.base.file_lock import locked
from kept.base.reports import SyncReport
from kept.base.sqlite import file_number
from kept.base.values import frozen
from kept.config import Config
from kept.errors import KeptError, LockBusy, WorkspaceError
from kept.index.sources import cite_source
from kept.memory import Memory
from kept.search.service import IndexService
from kept.server.live.changes import (
    KernelWatch,
    LiveTiming,
    SyncSchedule,
)

log = logging.getLogger(__name__)

# what others see

Role = Literal["stopped", "starting", "leader", "standby"]
"""The leader does the work. The others stand by, and one of them takes over when the leader is gone."""


Watching = Literal["nothing", "kernel", "polling"]
"""How changes are noticed: by the kernel, by scanning the folders again and again, or not."""


@frozen
class LiveState:
    role: Role = "stopped"
    watching: Watching = "nothing"
    leader_pid: int | None = None
    """Process that does the work, if known."""
    files: int = 0
    syncs: int = 0
    waiting: int = 0
    """Changes that were noticed and are not indexed yet."""
    syncing: bool = False
    completed: int = 0
    total: int = 0
    """Files of the running sync that are done, and all of them, as far as it reports them."""
    last_sync: str | None = None
    """When the last sync ended (ISO 8601)."""
    problem: str | None = None
    """Why the last sync was not complete. It is retried."""


EventKind = Literal["role", "synced", "notice", "problem"]


@frozen
class LiveEvent:
    """A new role, a completed sync, or a message for the user."""

    kind: EventKind
    state: LiveState
    message: str = ""
    report: SyncReport | None = None


# the lock of the leader

_MAX_PID_DIGITS = 20


def find_watcher(config: Config) -> int | None:
    """Return the id of the process that keeps this index current, or None.

    The number in the file counts only while a process holds the lock.
    """
    path = config.paths.watcher_lock(config.workspace)
    if not os.path.exists(path):
        return None
    try:
        with locked(path, wait_s=0, purpose="watching", create=False):
            return None
    except LockBusy:
        return _read_pid(path)
    except WorkspaceError:
        return None


def _read_pid(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            digits = file.read(_MAX_PID_DIGITS).strip()
    except OSError:
        return None
    return int(digits) if digits.isdigit() else None


@contextmanager
def leading(path: str) -> Iterator[Callable[[], bool]]:
    """Lead while the block runs. Raise LockBusy if another process leads.

    Yield a function that returns whether this process still leads: if the lock file was deleted, another process can
    create a new one and lead as well, so this one no longer does."""
    with ExitStack() as lock:
        try:
            make_private_folder(os.path.dirname(path))
            handle = lock.enter_context(locked(path, wait_s=0, purpose="watching"))
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        except OSError as exc:
            raise WorkspaceError(f"{path}: cannot be locked ({exc.strerror}).") from exc
        state = os.fstat(handle)
        yield lambda: file_number(path) == (state.st_dev, state.st_ino)


_MAX_WATCH_SETUPS = 5
_INSTALL_HINT = "To be notified at once, install: pip install 'kept[watch]'"
_LIMITS_HINT = "Raising fs.inotify.max_user_instances and fs.inotify.max_user_watches may help."


class _SyncStopped(Exception):
    """Ends a running sync between two batches of files, because the program ends."""


# the thread


class LiveIndex:
    """Keeps the index of a memory current in the background.

    >>> with Memory.open("~/notes") as memory, LiveIndex(memory):
    ...     serve(memory)

    Of all processes that do this for one index, one does the work. The others wait; when that one is gone, however
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
        self.watches = memory.settings.sync.watch if watch is None else watch
        self.timing = timing or LiveTiming()
        self.stopping = threading.Event()
        self.ready = threading.Event()
        """Set after the first sync, or if another process has the lead."""
        self._memory = memory
        self._listener = listener
        self._state = LiveState()
        self._notices: set[str] = set()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def start(self) -> LiveIndex:
        if self._thread is None:
            self.stopping.clear()
            self.update(role="starting")
            self._thread = threading.Thread(target=self._run, name="kept-live-index", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """End the thread. A running sync ends after its current batch of files; nothing is left half done."""
        self.stopping.set()
        if self._thread is not None:
            self._thread.join(self.timing.stop_wait_s)
        self._thread = None

    def __enter__(self) -> LiveIndex:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def state(self) -> LiveState:
        """Return the state. In a forked child it is stopped: the thread is the parent's."""
        return self._state if self._pid == os.getpid() else LiveState()

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the first sync is done, or another process has the lead."""
        return self.ready.wait(timeout_s)

    # for the thread, which alone changes the state

    def update(self, **fields: Any) -> None:
        self._state = replace(self._state, **fields)

    def set_role(self, role: Role, *, leader_pid: int | None = None) -> None:
        before = self._state
        if (before.role, before.leader_pid) == (role, leader_pid):
            return
        self.update(role=role, leader_pid=leader_pid, watching="nothing", waiting=0, syncing=False)
        takes_over = before.role == "standby" and role == "leader"
        self.emit("role", "Taking over: the process that kept the index current is gone." if takes_over else "")

    def report_problem(self, message: str) -> None:
        """Report a problem, unless it is the current one: a failure that repeats is one event."""
        if self._state.problem != message:
            self.update(problem=message)
            self.emit("problem", message)

    def report_notice(self, message: str) -> None:
        if message not in self._notices:
            self._notices.add(message)
            log.info("%s", message)
            self.emit("notice", message)

    def emit(self, kind: EventKind, message: str = "", *, report: SyncReport | None = None) -> None:
        if self._listener is not None:
            self._listener(LiveEvent(kind, self._state, message, report))

    # the thread

    def _run(self) -> None:
        try:
            service = self._memory.index_service.clone()
        except KeptError as exc:  # the settings name an unknown provider
            self.report_problem(exc.message)
            self.set_role("stopped")
            self.ready.set()
            return
        try:
            while not self.stopping.is_set():
                if not self._lead(service):
                    self.stopping.wait(self.timing.tick_s)
        finally:
            service.close()
            self.set_role("stopped")

    def _lead(self, service: IndexService) -> bool:
        """Lead until the lead ends. Return whether it ended in order: otherwise another lead begins, perhaps in another
        process."""
        path = service.config.paths.watcher_lock(service.config.workspace)
        try:
            with leading(path) as is_leader:
                self.set_role("leader", leader_pid=os.getpid())
                LeaderLoop(self, service, is_leader).run()
                return True
        except LockBusy:
            self.set_role("standby", leader_pid=_read_pid(path))
            self.ready.set()
        except KeptError as exc:  # the home is not writable
            self.report_problem(exc.message)
        except Exception as exc:  # the thread must survive whatever one lead meets
            log.info("leading failed", exc_info=True)
            self.report_problem(describe_unexpected(exc))
        return False


# the loop of the leader


@dataclass
class LeaderLoop:
    """One lead. `run` returns when the live index is stopped or the lock is lost.

    When folders come or go, the watch is set up again. Without ``watches``, the index is synced by the interval only.
    """

    live: LiveIndex
    service: IndexService
    is_leader: Callable[[], bool]

    def __post_init__(self) -> None:
        self.settings = self.service.settings.sync
        self.schedule = SyncSchedule(self.settings, self.live.timing)
        self.watch: KernelWatch | None = None
        self.watching: Watching = "nothing"
        self.roots = (self.service.workspace.root, *self.service.workspace.extra_paths)
        self.root_files = list(map(file_number, self.roots))

    def run(self) -> None:
        if not (self.live.watches or self.settings.on_session_start):
            self.schedule.note_sync(time.monotonic(), took_s=0.0, ok=True)
        try:
            for warning in self.service.chain.problems:
                self.live.report_notice(warning)
            while not self.live.stopping.is_set() and self.is_leader():
                if self._is_due():
                    self._sync_and_watch()
                else:
                    self._wait()
        finally:
            self._end_watch()
            self.live.ready.set()

    def _wait(self) -> None:
        """Wait for changes until the schedule has to be asked again, at most for a tick."""
        timeout_s = min(self.live.timing.tick_s, max(0.0, min(self.schedule.due_at()) - time.monotonic()))
        notes = transcripts = 0
        if self.watch is None:
            self.live.stopping.wait(timeout_s)
        else:
            try:
                notes, transcripts = self.watch.wait(timeout_s)
            except OSError as exc:
                self._poll(str(exc))
                notes = 1  # some may have been missed
        # The workspace or an extra path may have been replaced, or a link to it may lead elsewhere.
        before, self.root_files = self.root_files, list(map(file_number, self.roots))
        if self.root_files != before:
            self._end_watch()
            notes += 1
        self.live.update(waiting=self.schedule.note_changes(notes, transcripts, time.monotonic()))

    def _is_due(self) -> bool:
        now_s, (sync_at, measuring_at) = time.monotonic(), self.schedule.due_at()
        if now_s >= sync_at or now_s < measuring_at:
            return now_s >= sync_at
        try:
            with self.service.inspecting() as (_, planner):
                is_enough = planner.growth_reached()
        except KeptError as exc:
            self.live.report_problem(exc.message)
            is_enough = True  # the sync reports what is wrong
        if not is_enough:
            self.schedule.note_small_growth()
        return is_enough

    def _sync_and_watch(self) -> None:
        """Sync, and watch the folders that the sync listed. If they were not watched during the sync, sync again:
        they may have changed meanwhile."""
        for _ in range(_MAX_WATCH_SETUPS):
            listed = self._sync()
            folders = frozenset(self.service.folders())
            is_watched = self.watch is not None and not self.watch.is_stale and self.watch.folders == folders
            may_watch = listed and self.live.watches and self.watching != "polling"
            if self.live.stopping.is_set() or is_watched or not may_watch:
                break
            self._begin_watch(folders)
        else:  # folders come and go faster than they can be watched
            self.schedule.note_changes(1, 0, time.monotonic())
        self.live.update(watching=self.watching)
        self.live.ready.set()

    def _begin_watch(self, folders: frozenset[str]) -> None:
        """Watch the folders that the last sync listed."""
        self._end_watch()
        service = self.service
        cite = partial(cite_source, workspace=service.workspace, sessions_folder=service.config.paths.sessions)
        try:
            self.watch = KernelWatch(folders, cite, self.live.stopping, quiet_s=self.settings.watch_debounce_ms / 1000)
            self.watching = "kernel"
        except FileNotFoundError:  # deleted since; the next sync lists the folders that exist
            pass
        except ImportError:
            self._poll("the package 'watchfiles' is missing", hint=_INSTALL_HINT)
        except OSError as exc:
            self._poll(str(exc))

    def _end_watch(self) -> None:
        if self.watch is not None:
            self.watch.close()
        self.watch, self.watching = None, "nothing"

    def _poll(self, reason: str, *, hint: str = _LIMITS_HINT) -> None:
        """Sync from time to time from now on, because the kernel does not report changes."""
        self._end_watch()
        self.watching = "polling"
        self.schedule.interval_s = min(self.schedule.interval_s, self.live.timing.poll_s)
        self.live.report_notice(
            f"The kernel does not report changes ({reason}), so the index is synced from time to time. {hint}"
        )

    def _sync(self) -> bool:
        """Sync and report. Return whether the folders were listed."""
        started = time.monotonic()
        self.live.update(syncing=True, completed=0, total=0)
        report: SyncReport | None = None
        problem: str | None = None
        try:
            report = self.service.sync(progress=self._report_progress, by_request=False)
            problem = next(iter(report.failures), None)
        except _SyncStopped:
            pass
        except KeptError as exc:
            problem = f"{exc.message} {exc.hint}".strip()
        except Exception as exc:  # the thread must survive whatever one sync meets
            log.info("a sync failed", exc_info=True)
            problem = describe_unexpected(exc)
        now_s = time.monotonic()
        self.schedule.note_sync(now_s, took_s=now_s - started, ok=problem is None)
        self.live.update(syncing=False, waiting=0)
        syncs = self.live.state().syncs
        if report is not None:
            now = self.service.clock.now().isoformat(timespec="seconds")
            self.live.update(files=report.files, last_sync=now, syncs=syncs + 1)
        if problem:
            self.live.report_problem(problem)
        else:
            self.live.update(problem=None)
        if report is not None and (report.indexed or report.removed or report.rebuilt or not syncs):
            self.live.emit("synced", report=report)
        return report is not None

    def _report_progress(self, completed: int, total: int, label: str) -> None:
        if self.live.stopping.is_set():
            raise _SyncStopped
        self.live.update(completed=completed, total=total)


def describe_unexpected(exc: Exception) -> str:
    return f"Unexpected error: {type(exc).__name__}: {exc}"

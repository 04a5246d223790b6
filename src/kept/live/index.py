"""LiveIndex: a thread that keeps the index current for as long as a program runs."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any

from kept.database_files import file_number
from kept.errors import KeptError
from kept.forking import register
from kept.indexing.service import IndexService
from kept.indexing.sources import cite_source
from kept.live.agenda import PendingChanges, SyncSchedule
from kept.live.leadership import Leadership, lock_path
from kept.live.state import EventKind, LiveEvent, LiveState, Role
from kept.live.watcher import KERNEL_AGAIN_S, KernelWatch, NoWatch, PollingWatch, Watch
from kept.memory import Memory
from kept.records import SyncReport

log = logging.getLogger(__name__)

TICK_S = 1.0
"""How often somebody who stands by asks whether the leader is gone, and the leader whether its folders are."""
STOP_WAIT_S = 10.0
_REARM_TRIES = 5


class _Stopped(Exception):
    """Ends a sync that is under way, between two batches of files, because the program wants to end."""


class LiveIndex:
    """Keeps the index of a memory current in the background.

    >>> with Memory.open("~/notes") as memory, LiveIndex(memory):
    ...     serve(memory)

    Of all processes that do this for one index, one does the work. The rest stand by; when that one is gone, however
    it ended, one of them takes over within about a second. The work is done with a connection of its own, so searches
    do not wait for it. Nothing here raises: what does not work is in `state()`, and is tried again.

    ``watch`` says whether changes are watched (by default, whether ``memory_search.sync.watch`` says so); without, the
    index is brought up to date at the start and by the interval. ``listener`` is called from the thread, with what is
    worth telling.
    """

    def __init__(
        self, memory: Memory, *, watch: bool | None = None, listener: Callable[[LiveEvent], None] | None = None
    ) -> None:
        self._memory = memory
        self._settings = memory.settings.sync
        self._watches = self._settings.watch if watch is None else watch
        self._listener = listener
        self._leadership = Leadership(lock_path(memory.config))
        self._places = (memory.workspace.root, *memory.workspace.extra_paths)
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._guard = threading.Lock()
        self._state = LiveState()
        self._said: set[str] = set()
        self._kernel_again: float | None = None
        self._thread: threading.Thread | None = None
        register(self)

    def after_fork(self) -> None:
        """In a forked child: the thread is the parent's, and so is the lead. It can be started here too."""
        self._guard, self._thread, self._state = threading.Lock(), None, LiveState()
        self._stop, self._ready = threading.Event(), threading.Event()
        self._leadership = Leadership(self._leadership.path)

    # for the program

    def start(self) -> LiveIndex:
        if self._thread is None:
            self._stop.clear()
            self._change(role="starting")
            self._thread = threading.Thread(target=self._run, name="kept-live-index", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """Ends the thread. A sync that is under way ends after the files it is at; nothing is left half done."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(STOP_WAIT_S)
        self._thread = None

    def __enter__(self) -> LiveIndex:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def state(self) -> LiveState:
        with self._guard:
            return self._state

    def wait_ready(self, timeout_s: float) -> bool:
        """Waits until what was there at the start is taken in, or is another process's business."""
        return self._ready.wait(timeout_s)

    # the thread

    def _run(self) -> None:
        memory = self._memory.index_service.clone()
        try:
            while not self._stop.is_set():
                if not self._take_lead() or not self._lead_as_long_as_it_goes(memory):
                    self._stop.wait(TICK_S)
        finally:
            self._leadership.release()
            memory.close()
            self._become("stopped")

    def _take_lead(self) -> bool:
        try:
            leads = self._leadership.take()
        except KeptError as exc:  # the home cannot be written to
            self._has_problem(exc.message)
            return False
        if leads:
            self._become("leader", leader_pid=os.getpid())
        else:
            self._become("standby", leader_pid=self._leadership.find_leader())
            self._ready.set()
        return leads

    def _lead_as_long_as_it_goes(self, memory: IndexService) -> bool:
        """Whether it ended as it should. What went wrong is told, and leading begun anew: perhaps by somebody else."""
        try:
            self._lead(memory)
        except Exception as exc:
            log.info("leading failed", exc_info=True)
            self._has_problem(str(exc) if isinstance(exc, KeptError) else _unexpected(exc))
            return False
        return True

    def _lead(self, memory: IndexService) -> None:
        """Until it is told to stop, or the lock is lost."""
        agenda = SyncSchedule(self._settings)
        watch: Watch = NoWatch()
        places = self._numbers()
        for problem in memory.embedder_warnings:
            self._notify(problem)
        try:
            if not (self._watches or self._settings.on_session_start):
                agenda.synced(time.monotonic(), took_s=0.0, ok=True)
            while not self._stop.is_set() and self._leadership.is_held():
                if self._is_due(memory, agenda) or self._is_kernel_to_be_asked(watch):
                    watch = self._sync_and_arm(memory, agenda, watch)
                    continue
                watch = self._notice(memory, agenda, watch)
                places, before = self._numbers(), places
                if places != before:
                    watch.stale = self._watches
                    agenda.saw(PendingChanges(notes=1), time.monotonic())
                self._change(waiting=agenda.waiting)
        finally:
            watch.close()
            self._leadership.release()
            self._ready.set()

    def _is_due(self, memory: IndexService, agenda: SyncSchedule) -> bool:
        now = time.monotonic()
        if agenda.is_due(now):
            return True
        if not agenda.wants_measuring(now):
            return False
        try:
            enough = memory.growth_reached()
        except KeptError as exc:
            self._has_problem(exc.message)
            enough = True  # the sync will tell what is wrong
        if not enough:
            agenda.too_little_said()
        return enough

    def _notice(self, memory: IndexService, agenda: SyncSchedule, watch: Watch) -> Watch:
        """Waits for what happens next."""
        timeout_s = min(TICK_S, max(0.0, agenda.wake_at() - time.monotonic()))
        try:
            changes = watch.wait(timeout_s, self._stop)
        except OSError as exc:
            watch.close()
            agenda.saw(PendingChanges(notes=1), time.monotonic())  # whatever was not told
            return self._poll(memory, str(exc))
        if changes:
            agenda.saw(changes, time.monotonic() - watch.lag_s)
            self._change(waiting=agenda.waiting, last_change=changes.latest or self.state().last_change)
        return watch

    def _numbers(self) -> tuple[tuple[int, int] | None, ...]:
        """Which folders there are at the places that were named: they may be replaced, or links be turned elsewhere."""
        return tuple(file_number(place) for place in self._places)

    # syncing

    def _sync_and_arm(self, memory: IndexService, agenda: SyncSchedule, watch: Watch) -> Watch:
        """Takes in what changed. Folders that were not watched while that was going on are looked at once more."""
        for _ in range(_REARM_TRIES):
            went_well = self._sync(memory, agenda)
            if self._stop.is_set() or not went_well or not self._wants_other_watch(memory, watch):
                break
            watch.close()
            watch = self._arm(memory)
        else:
            agenda.saw(PendingChanges(notes=1), time.monotonic())  # folders come and go faster than they can be watched
        self._change(watching=watch.mode)
        self._ready.set()
        return watch

    def _sync(self, memory: IndexService, agenda: SyncSchedule) -> bool:
        """Whether the folders were looked at."""
        started = time.monotonic()
        self._change(syncing=True, completed=0, total=0)
        report, problem = self._try_to_sync(memory)
        if report is not None:
            now = self._memory.clock.now().isoformat(timespec="seconds")
            self._change(files=report.files, chunks=report.chunks, last_sync=now, syncs=self.state().syncs + 1)
        now_s = time.monotonic()
        agenda.synced(now_s, took_s=now_s - started, ok=problem is None)
        self._change(syncing=False, waiting=0)
        if problem:
            self._has_problem(problem)
        else:
            self._change(problem=None)
        if report is not None and (report.indexed or report.removed or report.rebuilt or self.state().syncs == 1):
            self._tell("synced", report=report)
        return report is not None

    def _try_to_sync(self, memory: IndexService) -> tuple[SyncReport | None, str | None]:
        try:
            report = memory.sync_background(progress=self._progress)
        except _Stopped:
            return None, None
        except KeptError as exc:
            return None, f"{exc.message} {exc.hint}".strip()
        except Exception as exc:  # the thread must outlive whatever one sync meets
            log.info("a sync failed", exc_info=True)
            return None, _unexpected(exc)
        return report, report.failures[0] if report.failures else None

    def _progress(self, completed: int, total: int, label: str) -> None:
        if self._stop.is_set():
            raise _Stopped
        self._change(completed=completed, total=total)

    # watching

    def _wants_other_watch(self, memory: IndexService, watch: Watch) -> bool:
        if not self._watches:
            return False
        if isinstance(watch, PollingWatch):
            return self._is_kernel_to_be_asked(watch)
        return watch.stale or watch.folders != frozenset(memory.folders())

    def _is_kernel_to_be_asked(self, watch: Watch) -> bool:
        """What others held of its watchers may be free by now."""
        polls = isinstance(watch, PollingWatch) and self._kernel_again is not None
        return polls and time.monotonic() >= (self._kernel_again or 0.0)

    def _arm(self, memory: IndexService) -> Watch:
        folders = memory.folders()
        if not folders:  # nothing could be looked at yet
            return NoWatch()
        try:
            return KernelWatch(folders, self._cite, quiet_s=self._settings.watch_debounce_ms / 1000)
        except FileNotFoundError:  # gone since: the next sync says which there are
            return NoWatch()
        except ImportError:
            hint = "Install what tells of changes at once: pip install 'kept[watch]'"
            return self._poll(memory, "the package 'watchfiles' is missing", hint=hint, again=False)
        except OSError as exc:
            return self._poll(memory, str(exc))

    def _poll(self, memory: IndexService, why: str, *, hint: str = "", again: bool = True) -> Watch:
        self._kernel_again = time.monotonic() + KERNEL_AGAIN_S if again else None
        hint = hint or "More may be allowed by raising fs.inotify.max_user_instances and fs.inotify.max_user_watches."
        self._notify(f"The kernel does not tell of changes ({why}), so folders are looked at from time to time. {hint}")
        return PollingWatch(memory.scan)

    def _cite(self, absolute: str) -> str | None:
        return cite_source(absolute, self._memory.workspace, self._memory.config.paths.sessions)

    # telling

    def _become(self, role: Role, *, leader_pid: int | None = None) -> None:
        before = self.state()
        if (before.role, before.leader_pid) == (role, leader_pid):
            return
        self._change(role=role, leader_pid=leader_pid, watching="nothing", waiting=0, syncing=False)
        self._tell("role", succeeds=before.role == "standby" and role == "leader")

    def _has_problem(self, message: str) -> None:
        """Told when it is a new one: what is tried again and again is not a line each time."""
        if self.state().problem != message:
            self._change(problem=message)
            self._tell("problem", message)

    def _notify(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            log.info("%s", message)
            self._tell("notice", message)

    def _change(self, **fields: Any) -> None:
        with self._guard:
            self._state = replace(self._state, **fields)

    def _tell(
        self, kind: EventKind, message: str = "", *, report: SyncReport | None = None, succeeds: bool = False
    ) -> None:
        if self._listener is not None:
            self._listener(LiveEvent(kind, self.state(), message, report, succeeds))


def _unexpected(exc: Exception) -> str:
    return f"Something went wrong that should not: {type(exc).__name__}: {exc}"

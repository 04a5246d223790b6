"""Noticing changes: the kernel tells (watchfiles), or where it cannot, the folders are looked at from time to time.

Exactly those folders are watched that a sync looked into, none of them with what lies below: so neither a symbolic
link nor a folder full of something else leads the watcher astray. When folders come or go, it is set up again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from threading import Event
from typing import TYPE_CHECKING

from kept.indexing.sources import is_transcript_path
from kept.live.agenda import PendingChanges
from kept.live.state import Watching
from kept.workspace.scan import Scan

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

_DELETED = 3
"""As watchfiles numbers changes."""
_LONGEST_STEP_S = 0.25
_SHORTEST_STEP_S = 0.01
_GROUPED_S = 1.0
POLL_S = 2.0
_SHARE_OF_POLLING = 40
"""Looking takes at most one part in so many of the time."""
KERNEL_AGAIN_S = 300.0


class KernelWatch:
    """Watchers of the kernel on some folders. Whatever the kernel refuses is an OSError."""

    mode: Watching = "kernel"

    def __init__(self, folders: Collection[str], cite: Callable[[str], str | None], *, quiet_s: float) -> None:
        """``cite`` names the file at a path, if it is one that matters."""
        from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

        self.folders = frozenset(folders)
        self._cite = cite
        # Woken up this often to look whether something came in: often enough to be in time, seldom enough to cost
        # nothing.
        self._step_s = min(_LONGEST_STEP_S, max(_SHORTEST_STEP_S, quiet_s / 6))
        self.lag_s = 2 * self._step_s
        """How old a change may be when it is told: one step until it is seen, one more to see that it is over."""
        self.stale = False
        """Whether one of the folders itself came or went: its watcher may be that of a folder that is gone."""
        try:
            self._notify: RustNotify = RustNotify(sorted(self.folders), False, False, 0, False, False)
        except WatchfilesRustInternalError as exc:
            raise OSError(str(exc)) from exc

    def wait(self, timeout_s: float, stop: Event) -> PendingChanges:
        """What changed, as soon as nothing more does for a moment. Nothing, when the time is up."""
        timeout_ms = max(1, int(timeout_s * 1000))
        try:
            raw = self._notify.watch(int(_GROUPED_S * 1000), int(self._step_s * 1000), timeout_ms, stop)
        except RuntimeError as exc:
            raise OSError(str(exc)) from exc
        return PendingChanges() if isinstance(raw, str) else self._sort(raw)

    def _sort(self, raw: set[tuple[int, str]]) -> PendingChanges:
        notes = transcripts = removed = 0
        latest = ""
        for kind, path in raw:
            is_watched = path in self.folders
            self.stale = self.stale or is_watched
            cited = self._cite(path)
            if cited is not None and is_transcript_path(cited):
                transcripts += 1
            elif cited is not None or is_watched or (kind != _DELETED and os.path.isdir(path)):
                notes += 1
            else:
                continue
            removed += kind == _DELETED
            latest = cited or latest
        return PendingChanges(notes, transcripts, removed, latest)

    def close(self) -> None:
        self._notify.close()


class PollingWatch:
    """Looks at names, sizes and times, and compares. The larger the workspace, the less often."""

    mode: Watching = "polling"
    folders: frozenset[str] = frozenset()
    stale = False
    lag_s = 0.0

    def __init__(self, look: Callable[[], Scan]) -> None:
        self._look = look
        self._next_look = 0.0
        self._seen = self._states()

    def wait(self, timeout_s: float, stop: Event) -> PendingChanges:
        stop.wait(min(timeout_s, max(0.0, self._next_look - time.monotonic())))
        if stop.is_set() or time.monotonic() < self._next_look:
            return PendingChanges()
        before, self._seen = self._seen, self._states()
        changed = {path for path, *_ in before ^ self._seen}
        there = {path for path, *_ in self._seen}
        transcripts = sum(map(is_transcript_path, changed))
        return PendingChanges(len(changed) - transcripts, transcripts, len(changed - there), max(changed, default=""))

    def _states(self) -> set[tuple[str, int, int, int]]:
        started = time.monotonic()
        found = self._look().files
        took_s = time.monotonic() - started
        self._next_look = time.monotonic() + max(POLL_S, took_s * _SHARE_OF_POLLING)
        return {(file.path, file.size, file.mtime_ns, file.ctime_ns) for file in found}

    def close(self) -> None:
        pass


class NoWatch:
    """For where changes are not to be watched: time passes."""

    mode: Watching = "nothing"
    folders: frozenset[str] = frozenset()
    stale = False
    lag_s = 0.0

    def wait(self, timeout_s: float, stop: Event) -> PendingChanges:
        stop.wait(timeout_s)
        return PendingChanges()

    def close(self) -> None:
        pass


Watch = KernelWatch | PollingWatch | NoWatch

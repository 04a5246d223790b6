"""Changes of files: how they are noticed, and when a sync is due.

The kernel reports them (watchfiles); if it refuses, a sync runs from time to time instead. Only the folders that a
sync has listed are watched, each without its subfolders: neither a symbolic link nor a large folder of other files can
make it watch more.

A change is left to settle (debounce), because editors and programs write a file in several steps. Changes that never
end are indexed all the same, but syncs take only a part of the time.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection
from threading import Event

from kept.base.values import frozen
from kept.config.schema import SyncSettings
from kept.notes.workspace import IGNORE_FILES
from kept.sessions.transcript_paths import is_transcript_citation

# when a sync is due. Pure: the time is passed in, in seconds.

MAX_SETTLE_FACTOR = 4.0
"""Changes that never end are indexed after this many times the debounce time."""
REST_FACTOR = 2.0
"""Rest after a sync, in multiples of its duration: ten thousand files that arrive one by one then use a third of a
core and not a whole one."""
MAX_REST_S = 30.0


@frozen
class LiveTiming:
    """Waiting times of a live index."""

    tick_s: float = 1.0
    """How often a standby tries to take the lead, and the leader checks its lock and its folders."""
    stop_wait_s: float = 10.0
    """Longest wait of `stop` for the thread."""
    talk_quiet_s: float = 10.0
    """A conversation that paused this long is indexed, however little it has grown."""
    retry_s: tuple[float, ...] = (5.0, 15.0, 60.0, 300.0)
    """Wait after the first failed sync, after the second, and so on."""
    minute_s: float = 60.0
    """Unit of ``memory_search.sync.interval_minutes``."""
    poll_s: float = 10.0
    """Time between two syncs if the kernel reports no changes."""


class SyncSchedule:
    def __init__(self, settings: SyncSettings, timing: LiveTiming) -> None:
        self._timing = timing
        self._quiet_s = settings.watch_debounce_ms / 1000
        self.interval_s = settings.interval_minutes * timing.minute_s or math.inf
        """Longest time between two syncs."""
        # Times of the changes that are not indexed yet, of each kind: they settle apart.
        self._notes: list[float] = []
        self._talk: list[float] = []
        self._measured_at_s = 0.0  # the last change of a conversation when its growth was found too small
        self._synced_at_s: float | None = None
        self._rest_until_s = -math.inf
        self._failures = 0

    def note_changes(self, notes: int, transcripts: int, now_s: float) -> int:
        """Take in changes, and return how many are not indexed yet. A conversation that is gone counts as a note: how
        much was said in it does not matter."""
        self._notes += [now_s] * notes
        self._talk += [now_s] * transcripts
        return len(self._notes) + len(self._talk)

    def note_sync(self, now_s: float, *, took_s: float, ok: bool) -> None:
        self._notes, self._talk = [], []
        self._synced_at_s = now_s
        self._rest_until_s = now_s + min(MAX_REST_S, took_s * REST_FACTOR)
        self._failures = 0 if ok else self._failures + 1

    def note_small_growth(self) -> None:
        self._measured_at_s = self._talk[-1]

    def due_at(self) -> tuple[float, float]:
        """Return when a sync is due, by what is known now: after a change, by the interval, or to retry. Return also
        when to measure the growth of the conversations, to decide if one is due."""
        if self._synced_at_s is None:
            return -math.inf, math.inf
        quiet_s = self._quiet_s
        # When no more changes of a kind are waited for.
        notes_at, talk_at = (
            min(times[-1] + quiet_s, times[0] + quiet_s * MAX_SETTLE_FACTOR) if times else math.inf
            for times in (self._notes, self._talk)
        )
        wait_s = self.interval_s
        if self._failures:
            wait_s = min(wait_s, self._timing.retry_s[min(self._failures, len(self._timing.retry_s)) - 1])
        paused_at = self._talk[-1] + max(self._timing.talk_quiet_s, quiet_s) if self._talk else math.inf
        sync_at = max(self._rest_until_s, min(notes_at, paused_at, self._synced_at_s + wait_s))
        is_measured = not self._talk or self._measured_at_s == self._talk[-1]
        return sync_at, math.inf if is_measured else max(self._rest_until_s, talk_at)


# noticing

_MAX_STEP_S = 0.25
_MIN_STEP_S = 0.01
_GROUPED_S = 1.0


class KernelWatch:
    """A watch of the kernel on some folders. Raises OSError if the kernel refuses.

    ``cite`` returns the citation of an indexed file, and None for any other file. `wait` ends early when ``stop`` is
    set.
    """

    def __init__(
        self, folders: Collection[str], cite: Callable[[str], str | None], stop: Event, *, quiet_s: float
    ) -> None:
        from watchfiles import Change, watch

        self.folders = frozenset(folders)
        self._cite = cite
        self._deleted = Change.deleted
        # The kernel's queue is read once per step: often enough to be in time, rarely enough to cost nothing.
        step_s = min(_MAX_STEP_S, max(_MIN_STEP_S, quiet_s / 6))
        self.is_stale = False
        """True after a watched folder itself came or went: the kernel may watch a folder that is gone."""
        self._batches = watch(
            *sorted(self.folders),
            watch_filter=None,
            debounce=int(_GROUPED_S * 1000),
            step=int(step_s * 1000),
            stop_event=stop,
            rust_timeout=1,  # return after every step, so that `wait` can keep its own timeout
            yield_on_timeout=True,
            debug=False,
            force_polling=False,
            recursive=False,
            ignore_permission_denied=False,
        )
        # `watch` is a generator: the folders are watched from its first step on.
        self._first = self._next()

    def wait(self, timeout_s: float) -> tuple[int, int]:
        """Return the number of the next changes of notes and of conversations, as soon as no more follow for a step; 0
        when the time is up."""
        deadline = time.monotonic() + timeout_s
        changes, self._first = self._first, set()
        while not changes and changes is not None and time.monotonic() < deadline:
            changes = self._next()
        notes = transcripts = 0
        for kind, path in changes or ():
            is_watched = path in self.folders
            self.is_stale = self.is_stale or is_watched
            cited = self._cite(path)
            is_gone = kind == self._deleted
            if cited is not None and is_transcript_citation(cited) and not is_gone:
                transcripts += 1
            elif (
                cited is not None
                or is_watched
                or os.path.basename(path) in IGNORE_FILES
                or (not is_gone and os.path.isdir(path))
            ):
                notes += 1
        return notes, transcripts

    def _next(self) -> set[tuple[int, str]] | None:
        """Return the changes of one step, or None if the watch was stopped."""
        try:
            return next(self._batches, None)  # type: ignore[return-value]
        except RuntimeError as exc:
            raise OSError(str(exc)) from exc

    def close(self) -> None:
        self._batches.close()

"""Noticing changes: through the kernel (watchfiles) or, if it refuses, by a sync from time to time.

Only the folders that a sync has listed are watched, each without its subfolders: neither a symbolic link nor a large
folder of other files can make it watch more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from threading import Event
from typing import Literal

from kept.notes.workspace import IGNORE_FILES
from kept.server.live.sync_timing import PendingChanges
from kept.sessions.transcript_paths import is_transcript_citation

Watching = Literal["nothing", "kernel", "polling"]
"""How changes are noticed: by the kernel, by scanning the folders again and again, or not."""

_MAX_STEP_S = 0.25
_MIN_STEP_S = 0.01
_GROUPED_S = 1.0


class KernelWatch:
    """A watch of the kernel on some folders. Raises OSError if the kernel refuses.

    ``cite`` returns the citation of an indexed file, and None for any other file. `wait` ends early when ``stop`` is
    set.
    """

    mode: Watching = "kernel"

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

    def wait(self, timeout_s: float) -> PendingChanges:
        """Return the next changes, as soon as no more follow for a step; none when the time is up."""
        deadline = time.monotonic() + timeout_s
        changes, self._first = self._first, set()
        while not changes and changes is not None and time.monotonic() < deadline:
            changes = self._next()
        notes = transcripts = 0
        latest = ""
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
            else:
                continue
            latest = cited or latest
        return PendingChanges(notes, transcripts, latest)

    def _next(self) -> set[tuple[int, str]] | None:
        """Return the changes of one step, or None if the watch was stopped."""
        try:
            return next(self._batches, None)  # type: ignore[return-value]
        except RuntimeError as exc:
            raise OSError(str(exc)) from exc

    def close(self) -> None:
        self._batches.close()


class IntervalWatch:
    """Reports a change every ``every_s`` seconds, since the kernel reports none; never, if that is None."""

    folders: frozenset[str] = frozenset()
    is_stale = False

    def __init__(self, stop: Event, every_s: float | None = None) -> None:
        self.mode: Watching = "nothing" if every_s is None else "polling"
        self._stop = stop
        self._every_s = float("inf") if every_s is None else every_s
        self._next_at_s = time.monotonic() + self._every_s

    def wait(self, timeout_s: float) -> PendingChanges:
        self._stop.wait(min(timeout_s, max(0.0, self._next_at_s - time.monotonic())))
        if time.monotonic() < self._next_at_s:
            return PendingChanges()
        self._next_at_s = time.monotonic() + self._every_s
        return PendingChanges(notes=1)

    def close(self) -> None:
        pass


Watch = KernelWatch | IntervalWatch

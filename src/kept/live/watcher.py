"""Noticing changes: through the kernel (watchfiles) or, if it refuses, by scanning the folders from time to time.

Only the folders that a sync has listed are watched, each without its subfolders: neither a symbolic link nor a large
folder of other files can make it watch more. When folders come or go, `WatchSupervisor` sets the watch up again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from functools import partial
from threading import Event
from typing import Literal

from kept.indexing.service import IndexService
from kept.indexing.sources import cite_source
from kept.live.sync_timing import LiveTiming, PendingChanges
from kept.sessions.transcript_paths import is_transcript_citation
from kept.sqlite import file_number
from kept.workspace.scan import Scan
from kept.workspace.workspace import IGNORE_FILES

Watching = Literal["nothing", "kernel", "polling"]
"""How changes are noticed: by the kernel, by scanning the folders again and again, or not."""

_MAX_STEP_S = 0.25
_MIN_STEP_S = 0.01
_GROUPED_S = 1.0
_SCAN_SHARE = 40
"""Scans take at most one part in this many of the time."""


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
        self.lag_s = 2 * step_s
        """Possible age of a change when it is reported: one step until it is seen, one to see that no more follow."""
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


class PollingWatch:
    """Scans names, sizes and times, and compares. The larger the workspace, the longer the time between scans."""

    mode: Watching = "polling"
    folders: frozenset[str] = frozenset()
    is_stale = False
    lag_s = 0.0

    def __init__(self, scan: Callable[[], Scan], stop: Event, *, poll_s: float) -> None:
        self._scan = scan
        self._stop = stop
        self._poll_s = poll_s
        self._next_scan_at_s = 0.0
        self._states = self._scan_states()

    def wait(self, timeout_s: float) -> PendingChanges:
        self._stop.wait(min(timeout_s, max(0.0, self._next_scan_at_s - time.monotonic())))
        if self._stop.is_set() or time.monotonic() < self._next_scan_at_s:
            return PendingChanges()
        before, self._states = self._states, self._scan_states()
        changed = {path for path, *_ in before ^ self._states}
        existing = {path for path, *_ in self._states}
        transcripts = sum(map(is_transcript_citation, changed & existing))
        return PendingChanges(len(changed) - transcripts, transcripts, max(changed, default=""))

    def _scan_states(self) -> set[tuple[str, int, int, int]]:
        started = time.monotonic()
        files = self._scan().files
        took_s = time.monotonic() - started
        self._next_scan_at_s = time.monotonic() + max(self._poll_s, took_s * _SCAN_SHARE)
        return {(file.path, file.size, file.mtime_ns, file.ctime_ns) for file in files}

    def close(self) -> None:
        pass


class NoWatch:
    """Notices nothing: for an index that is synced by the interval only, or whose folders are not known yet."""

    mode: Watching = "nothing"
    folders: frozenset[str] = frozenset()
    is_stale = False
    lag_s = 0.0

    def __init__(self, stop: Event) -> None:
        self._stop = stop

    def wait(self, timeout_s: float) -> PendingChanges:
        self._stop.wait(timeout_s)
        return PendingChanges()

    def close(self) -> None:
        pass


Watch = KernelWatch | PollingWatch | NoWatch


# the watch of an index

_INSTALL_HINT = "To be notified at once, install: pip install 'kept[watch]'"
_LIMITS_HINT = "Raising fs.inotify.max_user_instances and fs.inotify.max_user_watches may help."


class WatchSupervisor:
    """The current watch. ``enabled`` is False for an index that is synced by the interval only."""

    def __init__(
        self,
        service: IndexService,
        stop: Event,
        timing: LiveTiming,
        *,
        enabled: bool,
        report_notice: Callable[[str], None],
    ) -> None:
        self._service = service
        self._stop = stop
        self._report_notice = report_notice
        self._timing = timing
        self._enabled = enabled
        self._watch: Watch = NoWatch(stop)
        self._roots = (service.workspace.root, *service.workspace.extra_paths)
        self._root_files = list(map(file_number, self._roots))

    def wait(self, timeout_s: float) -> tuple[PendingChanges, float]:
        """Wait for changes. Return them, and how long ago they may have happened."""
        try:
            changes = self._watch.wait(timeout_s)
        except OSError as exc:
            self._watch.close()
            self._watch = self._poll(str(exc))
            return PendingChanges(notes=1), 0.0  # changes may have been missed
        return changes, self._watch.lag_s

    def roots_changed(self) -> bool:
        """Return whether the workspace or an extra path is another folder than before: it may have been replaced, or
        a link may lead elsewhere. The watch is set up again after the next sync."""
        before, self._root_files = self._root_files, list(map(file_number, self._roots))
        if self._root_files == before:
            return False
        self._watch.is_stale = self._enabled
        return True

    def needs_new_watch(self) -> bool:
        """Return whether the last sync listed other folders than are watched."""
        if not self._enabled:
            return False
        if isinstance(self._watch, PollingWatch):
            return False
        return self._watch.is_stale or self._watch.folders != frozenset(self._service.folders())

    def set_up(self) -> None:
        """Watch the folders that the last sync listed."""
        self._watch.close()
        self._watch = self._make_watch()

    @property
    def mode(self) -> Watching:
        return self._watch.mode

    def close(self) -> None:
        self._watch.close()

    def _make_watch(self) -> Watch:
        folders = self._service.folders()
        if not folders:  # nothing could be listed yet
            return NoWatch(self._stop)
        quiet_s = self._service.settings.sync.watch_debounce_ms / 1000
        sessions_folder = self._service.config.paths.sessions
        cite = partial(cite_source, workspace=self._service.workspace, sessions_folder=sessions_folder)
        try:
            return KernelWatch(folders, cite, self._stop, quiet_s=quiet_s)
        except FileNotFoundError:  # deleted since; the next sync lists the folders that exist
            return NoWatch(self._stop)
        except ImportError:
            return self._poll("the package 'watchfiles' is missing", hint=_INSTALL_HINT)
        except OSError as exc:
            return self._poll(str(exc))

    def _poll(self, reason: str, *, hint: str = _LIMITS_HINT) -> Watch:
        self._report_notice(
            f"The kernel does not report changes ({reason}), so folders are scanned from time to time. {hint}"
        )
        return PollingWatch(self._service.scan, self._stop, poll_s=self._timing.poll_s)

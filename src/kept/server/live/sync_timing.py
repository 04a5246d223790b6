"""Decides when a sync is due, from the changes that were noticed and when. Pure: the time is passed in, in seconds.

A change is left to settle (debounce), because editors and programs write a file in several steps. Changes that never
end are indexed all the same, but syncs take only a part of the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kept.base.values import frozen
from kept.config.schema import SyncSettings

MAX_SETTLE_FACTOR = 4.0
"""Changes that never end are indexed after this many times the debounce time."""
SINGLE_CHANGE_SHARE = 0.25
"""Share of the debounce time for a single change: most often a person has saved a note."""
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


@frozen
class PendingChanges:
    """Changes that were noticed together."""

    notes: int = 0
    """With conversations that are gone: the amount of talk does not matter there."""
    transcripts: int = 0
    latest: str = ""
    """Citation of one of the files."""

    def __bool__(self) -> bool:
        return bool(self.notes or self.transcripts)


@dataclass
class _ChangeCount:
    """Changes of one kind that are not indexed yet, with the times of the first and the last."""

    count: int = 0
    first_s: float = 0.0
    last_s: float = 0.0

    def add(self, count: int, now_s: float) -> None:
        if count:
            self.first_s = self.first_s if self.count else now_s
            self.last_s = now_s
            self.count += count


@dataclass
class SyncSchedule:
    settings: SyncSettings
    timing: LiveTiming = LiveTiming()
    _notes: _ChangeCount = field(default_factory=_ChangeCount)
    _talk: _ChangeCount = field(default_factory=_ChangeCount)
    _measured_at_s: float = 0.0
    """Time of the last change of a conversation when its growth was found too small. Measured again after the next."""
    _synced_at_s: float | None = None
    _rest_until_s: float = 0.0
    _failures: int = 0

    def __post_init__(self) -> None:
        self._quiet_s = self.settings.watch_debounce_ms / 1000

    @property
    def waiting(self) -> int:
        """Number of changes that are not indexed yet."""
        return self._notes.count + self._talk.count

    def note_change(self, changes: PendingChanges, now_s: float) -> None:
        self._notes.add(changes.notes, now_s)
        self._talk.add(changes.transcripts, now_s)

    def note_sync(self, now_s: float, *, took_s: float, ok: bool) -> None:
        self._notes, self._talk = _ChangeCount(), _ChangeCount()
        self._synced_at_s = now_s
        self._rest_until_s = now_s + min(MAX_REST_S, took_s * REST_FACTOR)
        self._failures = 0 if ok else self._failures + 1

    def note_small_growth(self) -> None:
        self._measured_at_s = self._talk.last_s

    def next_sync_at(self) -> float:
        """Return when a sync is due, by what is known now: after a change, by the interval, or to retry."""
        if self._synced_at_s is None:
            return float("-inf")
        notes_at = self._settled_at(self._notes) if self._notes.count else float("inf")
        pause_s = max(self.timing.talk_quiet_s, self._quiet_s)
        talk_at = self._talk.last_s + pause_s if self._talk.count else float("inf")
        due_at = max(min(notes_at, talk_at), self._rest_until_s)
        if self.settings.interval_minutes:
            due_at = min(due_at, self._synced_at_s + self.settings.interval_minutes * self.timing.minute_s)
        if self._failures:
            retry_s = self.timing.retry_s[min(self._failures, len(self.timing.retry_s)) - 1]
            due_at = min(due_at, self._synced_at_s + retry_s)
        return due_at

    def next_measuring_at(self) -> float:
        """Return when to measure the growth of the conversations, to decide if a sync is due."""
        if not self._talk.count or self._measured_at_s == self._talk.last_s:
            return float("inf")
        return max(self._rest_until_s, self._settled_at(self._talk))

    def _settled_at(self, changes: _ChangeCount) -> float:
        quiet_s = self._quiet_s * (SINGLE_CHANGE_SHARE if changes.count == 1 else 1.0)
        return min(changes.last_s + quiet_s, changes.first_s + self._quiet_s * MAX_SETTLE_FACTOR)

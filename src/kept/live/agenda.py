"""When a sync is due, from what was noticed and when. Pure: time is handed in, as seconds of any clock.

A change is left to settle, because editors and programs write a file in several goes. While changes never end, they
are taken in all the same, but not more than a part of the time is spent on that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kept.config.schema import SyncSettings
from kept.values import frozen

LONGEST_WAIT = 4.0
"""Changes that never end are taken in after so many times the quiet that is waited for."""
SHARE_FOR_ONE = 0.25
"""A single change is most often somebody who has saved a note, and is waited for less long than the first of many."""
SHARE_OF_REST = 2.0
"""After a sync, so many times as long as it took nothing is begun: ten thousand files that arrive one by one cost a
third of a core and not all of it."""
LONGEST_REST_S = 30.0
TALK_QUIET_S = 10.0
"""A conversation in which nothing was said for so long is taken in, however little it grew."""
RETRY_S = (5.0, 15.0, 60.0, 300.0)
SECONDS_A_MINUTE = 60.0


@frozen
class PendingChanges:
    """What was noticed in one go."""

    notes: int = 0
    transcripts: int = 0
    removed: int = 0
    """How many of them are gone."""
    latest: str = ""
    """What one of them is cited by."""

    def __bool__(self) -> bool:
        return bool(self.notes or self.transcripts or self.removed)

    def __len__(self) -> int:
        return self.notes + self.transcripts


@dataclass
class _Kind:
    """Changes of one kind that are not taken in: how many, and when the first and the last of them were noticed."""

    count: int = 0
    first: float = 0.0
    last: float = 0.0

    def saw(self, count: int, now: float) -> None:
        if count:
            self.first = self.first if self.count else now
            self.last = now
            self.count += count


@dataclass
class SyncSchedule:
    settings: SyncSettings
    _notes: _Kind = field(default_factory=_Kind)
    _talk: _Kind = field(default_factory=_Kind)
    _measured: float = 0.0
    """When it was last found that too little was said. Not again before more is."""
    _synced: float | None = None
    _rest_until: float = 0.0
    _failures: int = 0

    @property
    def quiet_s(self) -> float:
        return self.settings.watch_debounce_ms / 1000

    @property
    def waiting(self) -> int:
        return self._notes.count + self._talk.count

    def saw(self, changes: PendingChanges, now: float) -> None:
        self._notes.saw(changes.notes, now)
        # What is gone from the talk is not a matter of how much was said.
        self._notes.saw(changes.removed if not changes.notes else 0, now)
        self._talk.saw(changes.transcripts, now)

    def synced(self, now: float, *, took_s: float, ok: bool) -> None:
        self._notes, self._talk = _Kind(), _Kind()
        self._synced = now
        self._rest_until = now + min(LONGEST_REST_S, took_s * SHARE_OF_REST)
        self._failures = 0 if ok else self._failures + 1

    def too_little_said(self) -> None:
        self._measured = self._talk.last

    def is_due(self, now: float) -> bool:
        return now >= self.next_at()

    def wants_measuring(self, now: float) -> bool:
        """Whether it has to be found out if enough was said to take it in now."""
        if not self._talk.count or self._measured == self._talk.last:
            return False
        return now >= max(self._rest_until, self._settled(self._talk))

    def next_at(self) -> float:
        """When a sync is due, by what is known now."""
        if self._synced is None:
            return float("-inf")
        times = [
            self._settled(self._notes) if self._notes.count else float("inf"),
            self._talk.last + max(TALK_QUIET_S, self.quiet_s) if self._talk.count else float("inf"),
        ]
        due = max(min(times), self._rest_until)
        return min(due, self._next_round())

    def wake_at(self) -> float:
        """When there is something to do or to find out, unless something happens before."""
        unmeasured = self._talk.count and self._measured != self._talk.last
        asked = max(self._rest_until, self._settled(self._talk)) if unmeasured else float("inf")
        return min(self.next_at(), asked)

    def _settled(self, kind: _Kind) -> float:
        quiet_s = self.quiet_s * (SHARE_FOR_ONE if kind.count == 1 else 1.0)
        return min(kind.last + quiet_s, kind.first + self.quiet_s * LONGEST_WAIT)

    def _next_round(self) -> float:
        """By the interval that is set, or because something has to be tried again."""
        if self._synced is None:
            return float("-inf")
        rounds = [float("inf")]
        if self.settings.interval_minutes:
            rounds.append(self._synced + self.settings.interval_minutes * SECONDS_A_MINUTE)
        if self._failures:
            rounds.append(self._synced + RETRY_S[min(self._failures, len(RETRY_S)) - 1])
        return min(rounds)

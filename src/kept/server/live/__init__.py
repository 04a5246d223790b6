"""An index that keeps itself current: `LiveIndex`, for `kept index --watch` and for every program that stays up.

`live_index` runs a thread. Of all processes with such a thread, one leads, by a lock; `changes` notices
changes, and decides when a sync is due.
"""

from __future__ import annotations

from kept.server.live.live_index import LiveEvent, LiveIndex, LiveState, find_watcher

__all__ = ["LiveEvent", "LiveIndex", "LiveState", "find_watcher"]

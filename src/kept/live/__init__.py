"""An index that keeps itself current: `LiveIndex`, for `kept watch` and for every program that stays up."""

from __future__ import annotations

from kept.live.index import LiveIndex
from kept.live.leadership import find_watcher
from kept.live.state import LiveEvent, LiveState

__all__ = ["LiveEvent", "LiveIndex", "LiveState", "find_watcher"]

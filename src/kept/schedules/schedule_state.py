"""Schedules of an agent in a few figures, for `kept status`."""

from __future__ import annotations

import datetime as dt
import os
from typing import TYPE_CHECKING

from kept.clock import Clock
from kept.errors import KeptError
from kept.limits import clip, one_line
from kept.values import frozen

if TYPE_CHECKING:
    from kept.config import Config

_TEXT_CHARS = 60


@frozen
class ScheduleState:
    count: int
    paused: int = 0
    failed: int = 0
    """Schedules whose last run could not begin."""
    next: dt.datetime | None = None
    next_text: str = ""
    heartbeat_every: str | None = None
    last_heartbeat: dt.datetime | None = None


def find_schedule_state(config: Config, clock: Clock) -> ScheduleState | None:
    """Return the state of the schedules, or None if there are none and the heartbeat is off."""
    every = config.agent.heartbeat.every
    is_shared = config.memory_search.store.is_shared
    if not every and not is_shared and not os.path.exists(config.paths.schedules):
        return None
    from kept.schedules.open_schedules import open_schedules
    from kept.schedules.schedule_book import ScheduleBook

    try:
        book = open_schedules(config).read()
    except KeptError:  # `kept doctor` reports it
        book = ScheduleBook()
    if not book.schedules and not every:
        return None
    now = clock.now()
    times = [(time, schedule.text) for schedule in book.schedules if (time := schedule.find_next(now))]
    first, text = min(times, default=(None, ""))
    return ScheduleState(
        count=len(book.schedules),
        paused=sum(schedule.paused for schedule in book.schedules),
        failed=sum(bool(schedule.problem) for schedule in book.schedules),
        next=first,
        next_text=clip(one_line(text), _TEXT_CHARS),
        heartbeat_every=every,
        last_heartbeat=book.heartbeat,
    )

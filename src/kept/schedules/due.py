"""Decide what is due. Pure.

What was missed while no gateway ran is caught up once: the last time that was missed, if it is not too long ago.
Earlier ones are skipped.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from zoneinfo import ZoneInfo

from kept.config.schema import HeartbeatSettings
from kept.errors import ConfigError
from kept.schedules.schedule_book import Schedule
from kept.values import frozen

_DURATION = re.compile(r"(\d{1,5})\s*(m|min|minutes?|h|hours?|d|days?)\b")
_UNIT_S = {"m": 60, "h": 3600, "d": 86_400}
_HOURS = re.compile(r"\s*(\d{1,2}):(\d\d)\s*(?:-|–|to)\s*(\d{1,2}):(\d\d)\s*")


@frozen
class DueRun:
    """One run of a schedule."""

    schedule: Schedule
    due: dt.datetime
    is_asked_for: bool = False

    @property
    def message_id(self) -> str:
        """Name of its message, which is the same whenever and wherever this run is found due."""
        return f"schedule-{self.schedule.id}-{self.due:%Y%m%dT%H%M%SZ}"


def plan_due(schedules: Sequence[Schedule], now: dt.datetime, *, catch_up: dt.timedelta) -> list[DueRun]:
    """Return what to run now: what a person asked for, and the last time of each schedule that was not run."""
    runs = []
    for schedule in schedules:
        if schedule.asked_for is not None:
            runs.append(DueRun(schedule, schedule.asked_for, is_asked_for=True))
        if schedule.paused:
            continue
        last = schedule.rule.find_last(now)
        done = max(filter(None, (schedule.last_due, schedule.created)))
        if last is not None and last > done and now - last <= catch_up:
            runs.append(DueRun(schedule, last))
    return runs


def find_wait_s(schedules: Sequence[Schedule], now: dt.datetime, *, longest_s: float) -> float:
    """Return the seconds until the next run, at most ``longest_s``."""
    times = [time for schedule in schedules if (time := schedule.find_next(now)) is not None]
    return max(0.0, min([longest_s, *((time - now).total_seconds() for time in times)]))


@frozen
class Heartbeat:
    """Interval and hours of heartbeats."""

    every_s: int
    begin: dt.time
    end: dt.time
    """Equal to ``begin`` for the whole day."""
    zone: ZoneInfo

    def find_due(self, last: dt.datetime | None, now: dt.datetime) -> dt.datetime | None:
        """Return the heartbeat to run now, or None. Heartbeats are at multiples of the interval since 1970."""
        slot = dt.datetime.fromtimestamp(now.timestamp() // self.every_s * self.every_s, dt.UTC)
        if (last is not None and slot <= last) or not self.is_active(now):
            return None
        return slot

    def is_active(self, now: dt.datetime) -> bool:
        time = now.astimezone(self.zone).time()
        if self.begin == self.end:
            return True
        if self.begin < self.end:
            return self.begin <= time < self.end
        return time >= self.begin or time < self.end


def read_heartbeat(settings: HeartbeatSettings, zone: ZoneInfo) -> Heartbeat | None:
    """Return the heartbeat of the settings, or None if it is off. Raise ConfigError for values that make no sense."""
    if not settings.every or settings.every.strip() in ("0", "0m"):
        return None
    parts = _DURATION.findall(settings.every.lower())
    every_s = sum(int(count) * _UNIT_S[unit[0]] for count, unit in parts)
    if every_s < 60 or _DURATION.sub("", settings.every.lower()).strip():
        raise ConfigError(
            f"heartbeat.every: '{settings.every}' is not an interval.", hint="Write it like 30m, 2h or 1h 30m."
        )
    begin = end = dt.time()
    if settings.active_hours:
        match = _HOURS.fullmatch(settings.active_hours)
        try:
            if match is None:
                raise ValueError(settings.active_hours)
            begin, end = (_time_of_day(int(match[at]), int(match[at + 1])) for at in (1, 3))
        except ValueError:
            raise ConfigError(
                f"heartbeat.active_hours: '{settings.active_hours}' are not hours.", hint="Write them like 08:00-22:00."
            ) from None
    return Heartbeat(every_s, begin, end, zone)


def _time_of_day(hour: int, minute: int) -> dt.time:
    return dt.time(0 if (hour, minute) == (24, 0) else hour, minute)

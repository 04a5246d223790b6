"""The schedules of an agent, in `schedules.json`: what to ask, when, and what was run last.

Commands and the gateway both change it. A schedule is marked as run under the time at which it was due, after the
message is in the inbox under a name with that time. So a kill in between neither loses nor repeats it.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import replace
from zoneinfo import ZoneInfo

from kept.base.values import frozen
from kept.config import Config
from kept.config.schema import HeartbeatSettings
from kept.errors import ConfigError, NotFound, ScheduleInvalid
from kept.sessions.schedules.time_rule import TimeRule, get_zone, parse_rule
from kept.storage.open import open_agent
from kept.storage.record_store import Book

SCHEDULES = "schedules.json"
MAX_TEXT_CHARS = 20_000


@frozen
class Schedule:
    """A message to the agent at set times. All times are in UTC."""

    id: str
    when: str
    """Rule as the person wrote it, read at ``created``."""
    timezone: str
    text: str
    to: str
    """Key of the conversation that it belongs to and is answered in. Empty for one of its own, which nobody is sent."""
    created: dt.datetime
    paused: bool = False
    last_due: dt.datetime | None = None
    """Time of the last run, as the rule names it."""
    problem: str = ""
    """Reason why the last run did not begin."""

    def check(self) -> None:
        """Raise ValueError or ScheduleInvalid for a schedule that nobody can have added."""
        if not self.id.isalnum():
            raise ValueError("no id")
        self.rule  # noqa: B018 - raises if it cannot be read

    @property
    def rule(self) -> TimeRule:
        return parse_rule(self.when, get_zone(self.timezone), now=self.created)

    def find_next(self, now: dt.datetime) -> dt.datetime | None:
        """Return the time of the next run, or None if there is none."""
        return None if self.paused else self.rule.find_next(now)


@frozen
class ScheduleBook:
    schedules: tuple[Schedule, ...] = ()
    heartbeat: dt.datetime | None = None
    """Time of the last heartbeat."""

    def find(self, schedule_id: str) -> Schedule:
        """Return the schedule with this id, or with the only id that begins so. Raise NotFound."""
        similar = [item for item in self.schedules if schedule_id and item.id.startswith(schedule_id)]
        matches = [item for item in similar if item.id == schedule_id] or similar
        if len(matches) != 1:
            reason = "More than one schedule has an id that begins with" if matches else "No schedule has the id"
            raise NotFound(f"{reason} '{schedule_id[:40]}'.", hint="'kept schedule list' shows them with their ids.")
        return matches[0]

    def with_schedule(self, schedule: Schedule) -> ScheduleBook:
        """Return the book with a schedule added, or changed if it has one of that id."""
        by_id = {item.id: item for item in self.schedules}
        return replace(self, schedules=tuple({**by_id, schedule.id: schedule}.values()))

    def without(self, schedule: Schedule) -> ScheduleBook:
        return replace(self, schedules=tuple(item for item in self.schedules if item.id != schedule.id))


def open_schedules(config: Config) -> Book[ScheduleBook]:
    return Book(open_agent(config), SCHEDULES, ScheduleBook)


# what is due: of what was missed while no gateway ran, the last time, if it is not too long ago

_DURATION = re.compile(r"(\d{1,5})\s*(m(?:in)?|h)")


@frozen
class DueRun:
    """One run of a schedule."""

    schedule: Schedule
    due: dt.datetime

    @property
    def message_id(self) -> str:
        """Name of its message, which is the same whenever and wherever this run is found due."""
        return f"schedule-{self.schedule.id}-{self.due:%Y%m%dT%H%M%SZ}"


def plan_due(schedules: Sequence[Schedule], now: dt.datetime, *, catch_up: dt.timedelta) -> list[DueRun]:
    """Return what to run now: the last time of each schedule that was not run."""
    runs = []
    for schedule in schedules:
        if schedule.paused:
            continue
        last = schedule.rule.find_last(now)
        done = max(filter(None, (schedule.last_due, schedule.created)))
        if last is not None and last > done and now - last <= catch_up:
            runs.append(DueRun(schedule, last))
    return runs


def read_heartbeat(settings: HeartbeatSettings, zone: ZoneInfo, *, now: dt.datetime) -> TimeRule | None:
    """Return when heartbeats are, or None if they are off. Raise ConfigError for a rule that cannot be read."""
    every = (settings.every or "0").strip().lower()
    if every in ("0", "0m"):
        return None
    try:
        if match := _DURATION.fullmatch(every):
            every = f"every {match[1]} {'hours' if match[2] == 'h' else 'minutes'}"
        return parse_rule(every, zone, now=now)
    except ScheduleInvalid as exc:
        hint = "Write it like 30m, 2h or 0,30 8-21 * * *."
        raise ConfigError(f"heartbeat.every: {exc.message}", hint=hint) from None


def find_heartbeat(rule: TimeRule, last: dt.datetime | None, now: dt.datetime) -> dt.datetime | None:
    """Return the heartbeat to run now, or None if the last one that was due was run."""
    due = rule.find_last(now)
    return None if due is None or (last is not None and due <= last) else due

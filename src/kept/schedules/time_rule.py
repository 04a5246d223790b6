"""Rules of when something happens: at times of the calendar, at intervals, or once. Pure.

Times of the calendar are local, so "8:00" stays 8:00 when the clock changes. A time that the change skips is moved by
the change; a time that happens twice counts once, unless the rule names no hour ("every 10 minutes"), which counts real
time.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from typing import Protocol
from zoneinfo import ZoneInfo

from kept.errors import ScheduleInvalid
from kept.values import frozen

_MAX_DAYS = 366 * 41
"""Days to look through: 29 February falls on each day of the week at least once in forty years."""
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("day of the week", 0, 7))
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SHORTCUTS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_SUNDAY = 7
_MIN_INTERVAL_S = 60


class TimeRule(Protocol):
    """Times at which something happens. All of them are in UTC."""

    def find_next(self, after: dt.datetime) -> dt.datetime | None:
        """Return the first time after a moment, or None if there is none."""
        ...

    def find_last(self, until: dt.datetime) -> dt.datetime | None:
        """Return the last time until a moment, which counts, or None if there is none."""
        ...


@frozen
class CronRule:
    """Rule of five fields, as in cron: minute, hour, day of the month, month, day of the week."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    zone: ZoneInfo
    either_day: bool
    """True if a date fits that has one of the days or one of the weekdays: both are named."""
    names_hour: bool

    @classmethod
    def parse(cls, text: str, zone: ZoneInfo) -> CronRule:
        """Parse five fields, or a shortcut such as @daily. Raise ScheduleInvalid for anything else."""
        fields = _SHORTCUTS.get(text.strip().lower(), text).split()
        if len(fields) != len(_FIELDS):
            raise ScheduleInvalid(f"'{text}' does not have the five fields of cron.")
        minutes, hours, days, months, weekdays = (
            _parse_field(field, *limits, names)
            for field, limits, names in zip(fields, _FIELDS, ((), (), (), _MONTHS, _DAYS), strict=True)
        )
        weekdays = frozenset(day % _SUNDAY for day in weekdays)
        either_day = not fields[2].startswith("*") and not fields[4].startswith("*")
        rule = cls(minutes, hours, days, months, weekdays, zone, either_day, not fields[1].startswith("*"))
        if rule.find_next(dt.datetime(2024, 1, 1, tzinfo=dt.UTC)) is None:
            raise ScheduleInvalid(f"'{text}' names a date that does not exist.")
        return rule

    def find_next(self, after: dt.datetime) -> dt.datetime | None:
        for day in self._iter_days(after.astimezone(self.zone).date() - dt.timedelta(days=1), step=1):
            later = [time for time in self._times_on(day) if time > after]
            if later:
                return min(later)
        return None

    def find_last(self, until: dt.datetime) -> dt.datetime | None:
        for day in self._iter_days(until.astimezone(self.zone).date() + dt.timedelta(days=1), step=-1):
            earlier = [time for time in self._times_on(day) if time <= until]
            if earlier:
                return max(earlier)
        return None

    def _iter_days(self, first: dt.date, *, step: int) -> Iterator[dt.date]:
        for number in range(_MAX_DAYS):
            day = first + dt.timedelta(days=step * number)
            if day.month in self.months and self._fits(day):
                yield day

    def _fits(self, day: dt.date) -> bool:
        by_day, by_weekday = day.day in self.days, day.isoweekday() % _SUNDAY in self.weekdays
        return by_day or by_weekday if self.either_day else by_day and by_weekday

    def _times_on(self, day: dt.date) -> set[dt.datetime]:
        folds = (0,) if self.names_hour else (0, 1)
        return {
            dt.datetime(day.year, day.month, day.day, hour, minute, tzinfo=self.zone, fold=fold).astimezone(dt.UTC)
            for hour in self.hours
            for minute in self.minutes
            for fold in folds
        }


@frozen
class IntervalRule:
    """Rule that is due again after a fixed number of seconds, counted from a start."""

    begin: dt.datetime
    every_s: int

    def find_next(self, after: dt.datetime) -> dt.datetime | None:
        last = self.find_last(after)
        return (last or self.begin) + dt.timedelta(seconds=self.every_s)

    def find_last(self, until: dt.datetime) -> dt.datetime | None:
        count = int((until - self.begin).total_seconds()) // self.every_s
        return self.begin + dt.timedelta(seconds=count * self.every_s) if count > 0 else None


@frozen
class OnceRule:
    at: dt.datetime

    def find_next(self, after: dt.datetime) -> dt.datetime | None:
        return self.at if self.at > after else None

    def find_last(self, until: dt.datetime) -> dt.datetime | None:
        return self.at if self.at <= until else None


def make_interval(begin: dt.datetime, every_s: int) -> IntervalRule:
    if every_s < _MIN_INTERVAL_S:
        raise ScheduleInvalid("An interval has at least one minute.")
    return IntervalRule(begin.astimezone(dt.UTC), every_s)


def make_once(at: dt.datetime) -> OnceRule:
    return OnceRule(at.astimezone(dt.UTC))


def _parse_field(text: str, name: str, low: int, high: int, words: Iterable[str]) -> frozenset[int]:
    """Return the numbers that a field of cron names: 5, 1-5, */15, 1-31/2, MON, and lists of these."""
    numbers = {word: number for number, word in enumerate(words, 1 if low else 0)}
    values: set[int] = set()
    for item in text.lower().split(","):
        span, slash, step_text = item.partition("/")
        first_text, dash, last_text = span.partition("-")
        try:
            step = int(step_text) if slash else 1
            if span == "*":
                first, last = low, high
            else:
                first = numbers.get(first_text, -1) if first_text in numbers else int(first_text)
                last = (numbers[last_text] if last_text in numbers else int(last_text)) if dash else first
                last = high if slash and not dash else last
        except ValueError:
            raise ScheduleInvalid(f"'{item}' is not a {name}.") from None
        if not low <= first <= last <= high or step < 1:
            raise ScheduleInvalid(f"'{item}' is not a {name}: it is from {low} to {high}.")
        values.update(range(first, last + 1, step))
    return frozenset(values)

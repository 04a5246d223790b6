"""Rules of when something happens: at times of the calendar, or once. Pure.

A person writes them in plain words, or in the five fields of cron:

every weekday 8:00 · every monday and friday at 7:30am · daily at 8:00 and 18:00 · every 30 minutes
every month on the 1st at 9:00 · tomorrow 9:00 · in 2 hours · 2026-12-24 18:00 · 0 8 * * 1-5
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Mapping
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from kept.base.values import frozen
from kept.errors import ScheduleInvalid

EXAMPLES = "'every weekday 8:00', 'every 2 hours', 'tomorrow 9:30', '2026-12-24 18:00' or '0 8 * * 1-5'"
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DAY_NAMES = {
    **{day: str(number) for number, day in enumerate(_WEEKDAYS)},
    **{"weekday": "1-5", "workday": "1-5", "weekend": "0,6", "day": "*", "daily": "*"},
}
_DAY_WORDS = re.compile(r"\b(sun|mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|satur|sat)(?:day)?s?\b")
_TIME = re.compile(
    r"\b(?:at\s+)?(?P<hour>\d{1,2})(?:[:.](?P<minute>\d\d))?\s*(?P<half>[ap])\.?m\b\.?|\b(?:at\s+)?(?P<h24>\d{1,2}):(?P<m24>\d\d)\b"
)
_NAMED_TIMES = {"noon": "12:00", "midnight": "0:00"}
_INTERVAL = re.compile(r"every\s+(?:(?P<count>\d{1,5})\s+)?(?P<unit>minute|min|hour|hr|day|week)s?")
_AFTER = re.compile(r"in\s+(?:(?P<count>\d{1,5}|an?)\s+)(?P<unit>minute|min|hour|hr|day|week)s?")
_ORDINAL = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)\b")
_DATE = re.compile(r"(?:on\s+)?(?P<date>\d{4}-\d\d-\d\d)(?:\s+|t)(?P<rest>.+)")
_RELATIVE = re.compile(r"(?P<day>today|tomorrow)\b\s*(?P<rest>.*)")
_SECONDS = {"minute": 60, "min": 60, "hour": 3600, "hr": 3600, "day": 86_400, "week": 604_800}
_MINUTES_A_DAY = 1440
_LOCAL_TIME = "/etc/localtime"
_MARK = "zoneinfo/"


@frozen
class CronRule:
    """Rule of five fields, as in cron: minute, hour, day of the month, month, day of the week.

    Times are local, so "8:00" stays 8:00 when the clock changes. A time that the change skips is moved to its end; a
    time that happens twice counts once, unless the rule names no hour ("every 10 minutes"), which counts real time.
    """

    fields: str
    zone: ZoneInfo

    @classmethod
    def parse(cls, text: str, zone: ZoneInfo) -> CronRule:
        """Parse five fields. Raise ScheduleInvalid if they make no sense."""
        rule = cls(text, zone)
        try:
            first = rule.find_next(dt.datetime(2024, 1, 1, tzinfo=dt.UTC))
        except CronSimError as exc:
            raise ScheduleInvalid(f"'{text}' cannot be read as cron: {exc}.") from None
        if first is None:
            raise ScheduleInvalid(f"'{text}' names a date that does not exist.")
        return rule

    def find_next(self, after: dt.datetime) -> dt.datetime | None:
        times = CronSim(self.fields, after.astimezone(self.zone))
        return next((time.astimezone(dt.UTC) for time in times if time > after), None)

    def find_last(self, until: dt.datetime) -> dt.datetime | None:
        # From an hour later: after the clock was put back, the local time is again before the one that counts.
        times = CronSim(self.fields, (until + dt.timedelta(hours=1)).astimezone(self.zone), reverse=True)
        return next((time.astimezone(dt.UTC) for time in times if time <= until), None)


@frozen
class OnceRule:
    at: dt.datetime

    def find_next(self, after: dt.datetime) -> dt.datetime | None:
        return self.at if self.at > after else None

    def find_last(self, until: dt.datetime) -> dt.datetime | None:
        return self.at if self.at <= until else None


TimeRule = CronRule | OnceRule
"""Times at which something happens, in UTC: the next one after a moment, and the last one until a moment."""


def parse_rule(text: str, zone: ZoneInfo, *, now: dt.datetime) -> TimeRule:
    """Parse a schedule; relative times count from ``now``. Raise ScheduleInvalid if it cannot be read."""
    plain = " ".join(text.lower().split())
    for word, time in _NAMED_TIMES.items():
        plain = re.sub(rf"\b{word}\b", time, plain)
    fields = plain.split()
    if len(fields) == 5 and all(re.fullmatch(r"[\d*][\d*/,-]*", field) for field in fields[:3]):
        return CronRule.parse(plain, zone)
    rule = _parse_once(plain, zone, now) or _parse_interval(plain, zone) or _parse_calendar(plain, zone)
    if rule is None:
        raise ScheduleInvalid(f"'{text}' cannot be read as a schedule.", hint=f"Write it like {EXAMPLES}.")
    return rule


def _parse_once(text: str, zone: ZoneInfo, now: dt.datetime) -> OnceRule | None:
    if match := _AFTER.fullmatch(text):
        count = int(match["count"]) if match["count"].isdigit() else 1
        return OnceRule((now + dt.timedelta(seconds=count * _SECONDS[match["unit"]])).astimezone(dt.UTC))
    local = now.astimezone(zone)
    if match := _RELATIVE.fullmatch(text):
        day = local.date() + dt.timedelta(days=match["day"] == "tomorrow")
    elif match := _DATE.fullmatch(text):
        try:
            day = dt.date.fromisoformat(match["date"])
        except ValueError:
            raise ScheduleInvalid(f"{match['date']} is not a date.") from None
    else:
        return None
    times, rest = _take_times(match["rest"])
    if len(times) != 1 or rest:
        return None
    at = dt.datetime(day.year, day.month, day.day, *times[0], tzinfo=zone)
    if at <= now:
        raise ScheduleInvalid(f"{at:%Y-%m-%d %H:%M} is in the past.")
    return OnceRule(at.astimezone(dt.UTC))


def _parse_interval(text: str, zone: ZoneInfo) -> CronRule | None:
    match = _INTERVAL.fullmatch("every hour" if text == "hourly" else text)
    if match is None or (match["unit"] in ("day", "week") and match["count"] is None):
        return None
    minutes = int(match["count"] or 1) * _SECONDS[match["unit"]] // 60
    # Aligned to the clock: every 30 minutes is at :00 and :30.
    if minutes and 60 % minutes == 0:
        return CronRule.parse(f"*/{minutes} * * * *" if minutes < 60 else "0 * * * *", zone)
    if minutes and minutes % 60 == 0 and _MINUTES_A_DAY % minutes == 0 and minutes < _MINUTES_A_DAY:
        return CronRule.parse(f"0 */{minutes // 60} * * *", zone)
    raise ScheduleInvalid(
        "An interval has to divide an hour or a day.", hint="Write it like 'every 30 minutes' or 'every 2 hours'."
    )


def _parse_calendar(text: str, zone: ZoneInfo) -> CronRule | None:
    times, rest = _take_times(text)
    if not times:
        return None
    rest = _DAY_WORDS.sub(lambda match: match[1][:3], rest)
    days = _ORDINAL.findall(rest)
    words = re.findall(r"[a-z]+|\d+", _ORDINAL.sub(" ", rest))
    weekdays: list[str] = []
    for word in words:
        name = word.rstrip("s") if word not in _WEEKDAYS else word
        if name in _DAY_NAMES:
            weekdays.append(_DAY_NAMES[name])
        elif word not in ("every", "each", "on", "and", "at", "the", "of", "month", "monthly"):
            return None
    if bool(days) == bool(weekdays):
        return None
    minutes = sorted({minute for _, minute in times})
    if len(minutes) > 1:
        raise ScheduleInvalid("All times of one schedule must have the same minute.", hint="Add a schedule for each.")
    hours = ",".join(str(hour) for hour, _ in times)
    return CronRule.parse(f"{minutes[0]} {hours} {','.join(days) or '*'} * {','.join(weekdays) or '*'}", zone)


def _take_times(text: str) -> tuple[list[tuple[int, int]], str]:
    """Return the times of day in a text as hour and minute, and the rest of the text."""
    times = []
    for match in _TIME.finditer(text):
        hour, minute = int(match["hour"] or match["h24"]), int(match["minute"] or match["m24"] or 0)
        if match["half"]:
            if not 1 <= hour <= 12:
                raise ScheduleInvalid(f"'{match[0].strip()}' is not a time of day.")
            hour = hour % 12 + (12 if match["half"] == "p" else 0)
        if hour > 23 or minute > 59:
            raise ScheduleInvalid(f"'{match[0].strip()}' is not a time of day.")
        times.append((hour, minute))
    return times, " ".join(_TIME.sub(" ", text).split())


# time zones


def get_zone(name: str) -> ZoneInfo:
    """Return the time zone of a name such as Europe/Berlin. Raise ScheduleInvalid if there is none."""
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise ScheduleInvalid(
            f"There is no time zone '{name[:60]}'.", hint="Name one such as Europe/Berlin, Asia/Bangkok or UTC."
        ) from None


def find_local_zone(environ: Mapping[str, str] = os.environ) -> str:
    """Return the name of this machine's time zone. Raise ScheduleInvalid if it has none."""
    names = [environ.get("TZ", "").removeprefix(":")]
    target = os.path.realpath(_LOCAL_TIME)
    if _MARK in target:
        names.append(target.rpartition(_MARK)[2])
    for name in filter(None, names):
        try:
            return get_zone(name).key
        except ScheduleInvalid:
            continue
    if not os.path.exists(_LOCAL_TIME) and os.name == "posix":
        return "UTC"
    raise ScheduleInvalid("The time zone of this machine has no name.", hint="Give one: --timezone Europe/Berlin.")

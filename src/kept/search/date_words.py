"""Parts of a time expression: its words in fourteen languages, read from `date_words.json`, and the calendar.

The words are as they are indexed: lower case, without accents. Each line there holds the words of one month, weekday,
number or unit, English first. Chinese, Japanese and Korean have no spaces, so their words are looked up in a run of
characters.

Periods are of local time, with the calendar arithmetic that makes them, and dates in digits. Times are local and naive:
a day has 23 or 25 hours where the clocks change, which only the local time zone knows.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from calendar import isleap, monthrange
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from kept.base.values import frozen

_DATA: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_bytes())


def _words(name: str) -> frozenset[str]:
    return frozenset(_DATA[name].split())


def _numbered(lines: Iterable[str], first: int) -> dict[str, int]:
    return {word: number for number, line in enumerate(lines, first) for word in line.split()}


def _offsets(name: str, separator: str) -> Iterator[tuple[tuple[str, ...], tuple[str, int]]]:
    """Yield the phrases for a period relative to today, with a unit and the number of units from now."""
    for key, phrases in _DATA[name].items():
        unit, number = key.split()
        yield from ((tuple(phrase.split()), (unit, int(number))) for phrase in phrases.split(separator))


MONTHS = _numbered(_DATA["months"], 1)
WEEKDAYS = _numbered(_DATA["weekdays"], 0)
NUMBERS = _numbered(_DATA["numbers"], 1)
UNITS = {word: unit for unit, line in _DATA["units"].items() for word in line.split()}
AMBIGUOUS = _words("ambiguous")
"""Months that are also other words. They count only if a word beside them shows that they are a date."""
SHORT_WEEKDAYS = _words("short_weekdays")
"""Weekdays that are also other words. They count only after a word such as "on"."""
IN, OF, ON, THIS, ARTICLES = map(_words, ("in", "of", "on", "this", "articles"))
AGO_AFTER, AGO_BEFORE = _words("ago_after"), _words("ago_before")
LAST, LAST_DAY, NEXT_DAY = map(_words, ("last", "last_day", "next_day"))
GERMAN = _words("german")
"""Words beside "hier" that show that it is German for here, not French for yesterday."""
GREETINGS = _words("greetings")
GENERAL, GENERAL_ELSEWHERE = _words("general"), _words("general_elsewhere")
"""Words that say nothing about the content, in English and in other languages."""
SINCE, UNTIL, AFTER, TO = map(_words, ("since", "until", "after", "to"))

UNSPACED = dict(_offsets("unspaced_relative", " "))
RELATIVE = {**dict(_offsets("relative", "|")), **UNSPACED}
"""Phrases for a period relative to today, and those of scripts without spaces."""
PART_HOURS = {"morning": (0, 12), "afternoon": (12, 18), "evening": (18, 24), "night": (18, 30)}
"""Hours from midnight. The small hours of a day belong to its morning, and to the night before."""
TELLING = frozenset((*MONTHS, *WEEKDAYS, *UNITS, *(phrase[-1] for phrase in RELATIVE)))
"""Every time expression in a script with spaces has one of these words, or a digit."""


@cache
def english_words() -> frozenset[str]:
    """Return the English words of time expressions: in other languages, other small words are around them."""
    lines = (*_DATA["months"], *_DATA["weekdays"], *_DATA["numbers"], *_DATA["units"].values())
    phrases = [text.partition("|")[0] for text in _DATA["relative"].values()]
    return frozenset(" ".join((*(line.split()[0] for line in lines), *phrases, _DATA["english"])).split())


EARLIER_YEARS, EARLIER_WEIGHT = 5, 0.5
_MAX_DAYS = 36_500
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}

TimeKind = Literal["day", "date", "recurring", "weekday", "week", "month", "year", "span"]
"""``day`` is relative to today, ``date`` has a year, ``recurring`` has none."""


@frozen
class Period:
    """Local time from ``start`` up to but not including ``end``."""

    start: dt.datetime
    end: dt.datetime
    weight: float = 1.0


@frozen
class TimeReading:
    """Meaning of a time expression."""

    kind: TimeKind
    periods: tuple[Period, ...]
    """The most likely one first."""
    exact: Period | None = None
    """The very day or moment, where ``periods`` has the time around it."""


def to_ms(local: dt.datetime) -> int:
    """Return a local time as milliseconds since 1970."""
    try:
        return int(local.astimezone().timestamp() * 1000)
    except (OverflowError, OSError, ValueError):  # the year 1 has no local time
        return int(local.replace(tzinfo=dt.UTC).timestamp() * 1000)


def days_from(day: dt.date, count: int) -> Period:
    """Return the period of some whole days that begins with a day."""
    midnight = dt.datetime.combine(day, dt.time())
    return Period(midnight, midnight + dt.timedelta(days=count))


def day_of(day: dt.date) -> Period:
    return days_from(day, 1)


def period_of(unit: str, day: dt.date) -> Period:
    """Return the day, its week from Monday on, weekend, month or year, or the part of it that a day is in."""
    match unit:
        case "day":
            return day_of(day)
        case "week":
            return days_from(day - dt.timedelta(days=day.weekday()), 7)
        case "weekend":
            return days_from(day + dt.timedelta(days=5 - day.weekday()), 2)
        case "month":
            return days_from(day.replace(day=1), monthrange(day.year, day.month)[1])
        case "year":
            return days_from(dt.date(day.year, 1, 1), 365 + isleap(day.year))
    midnight = day_of(day).start
    first, last = (dt.timedelta(hours=hours) for hours in PART_HOURS[unit])
    return Period(midnight + first, midnight + last)


def read_date(year: int, month: int | None = None, day: int | None = None) -> TimeReading:
    """Return the reading of a year, a month or a day. Raise ValueError if there is none."""
    unit = "day" if day else "month" if month else "year"
    kind: TimeKind = "date" if day else "month" if month else "year"
    return TimeReading(kind, (period_of(unit, dt.date(year, month or 1, day or 1)),))


def add_months(day: dt.date, count: int) -> dt.date:
    """Return the same day of another month, or its last day: 31 March less one month is 28 February."""
    year, month = divmod(day.year * 12 + day.month - 1 + count, 12)
    return dt.date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def last_occurrences(month: int, day: int | None, today: dt.date, *, before: bool = False) -> tuple[Period, ...]:
    """Return the last such day or month, and at a lower weight those of earlier years that exist.

    ``before`` leaves out the current month: "last March", said in March, is a year ago.
    """
    has_been = (month, day or 1) <= (today.month, today.day) and not (before and month == today.month)
    year = today.year if has_been else today.year - 1
    periods: list[Period] = []
    for back in range(1 + EARLIER_YEARS):
        with suppress(ValueError, OverflowError):  # most years have no 29 February
            (period,) = read_date(year - back, month, day).periods
            periods.append(replace(period, weight=EARLIER_WEIGHT if back else 1.0))
    return tuple(periods)


def read_ago(now: dt.datetime, unit: str, count: int) -> TimeReading:
    """Return the time ``count`` units ago; a negative count is ahead.

    People round: "two weeks ago" is somewhere in the week around that day.
    """
    now = now.replace(tzinfo=None)
    if unit in ("minute", "hour"):
        moment = now - dt.timedelta(**{f"{unit}s": max(-_MAX_DAYS, min(count, _MAX_DAYS))})
        half = dt.timedelta(minutes=5 if unit == "minute" else 30)
        return TimeReading("span", (Period(moment - half, moment + half),), exact=Period(moment, moment))
    day = shift(now.date(), unit, -count)
    half_days = _UNIT_DAYS[unit] // 2
    around = days_from(day - dt.timedelta(days=half_days), 2 * half_days + 1)
    return TimeReading("day" if unit == "day" else "span", (around,), exact=day_of(day))


def shift(day: dt.date, unit: str, count: int) -> dt.date:
    """Return the day ``count`` units later."""
    if unit in ("month", "year"):
        count = max(-1200, min(count, 1200))
        return add_months(day, count * (12 if unit == "year" else 1))
    days = max(-_MAX_DAYS, min(count * _UNIT_DAYS[unit], _MAX_DAYS))
    return day + dt.timedelta(days=days)


# dates in digits

_Reader = Callable[[re.Match[str], dt.datetime], TimeReading | None]
_SEPARATED = r"(?<![\d.,/-])(\d{1,4})([-/.]) ?(\d{1,2})(?:\2 ?(\d{1,4}))?(?![\d/-])"


def find_numeric(text: str, now: dt.datetime) -> list[tuple[int, int, TimeReading]]:
    """Return start, end and reading of each date in digits that exists, in order and without overlaps."""
    dates: list[tuple[int, int, TimeReading]] = []
    covered = set[int]()
    if not any(map(str.isdigit, text)):
        return dates
    # Compiled by `re` on first use: few queries need one.
    separated = {_SEPARATED: _separated} if any(mark in text for mark in "-/.") else {}
    for pattern, reader in (separated | ({} if text.isascii() else _CJK_DATES)).items():
        for match in re.finditer(pattern, text):
            start, end = match.span()
            if covered.intersection(range(start, end)):
                continue
            covered.update(range(start, end))  # also a date that does not exist: no part of it is one
            with suppress(ValueError, OverflowError):
                if reading := reader(match, now):
                    dates.append((start, end, reading))
    return sorted(dates, key=itemgetter(0))


def _separated(match: re.Match[str], now: dt.datetime) -> TimeReading | None:
    """Read numbers with a separator: 2024-01-15, 2024/1/5, 15.01.2024, 01/15/2024, 2024-03. Return None otherwise."""
    first, separator, second, third = match.groups()
    if len(first) == 4:
        if third is None:
            return read_date(int(first), int(second)) if separator == "-" and len(second) == 2 else None
        return read_date(int(first), int(second), int(third)) if len(third) <= 2 else None
    if len(first) > 2 or third is None or len(third) != 4:
        return None
    day, month = int(first), int(second)
    if separator != ".":
        if day <= 12 and month <= 12 and day != month:
            return None  # 3/4/2024 may be in March or in April
        if month > 12:
            day, month = month, day
    return read_date(int(third), month, day)


def _cjk_day(match: re.Match[str], now: dt.datetime) -> TimeReading | None:
    periods = last_occurrences(int(match[1]), int(match[2]) if match[2] else None, now.date())
    return TimeReading("recurring", periods) if periods else None


_CJK_UNITS = {**dict.fromkeys("天日일", "day"), **dict.fromkeys("周週주", "week"), **dict.fromkeys("年년", "year")}

_CJK_DATES: dict[str, _Reader] = {
    r"(?<!\d)(\d{4}) ?[年년] ?(?:(\d{1,2}) ?[月월] ?(?:(\d{1,2}) ?[日號号일])?)?": lambda match, now: read_date(
        *(int(number) for number in match.groups() if number)
    ),
    r"(?<!\d)(\d{1,2}) ?[月월] ?(?:(\d{1,2}) ?[日號号일])?(?![前간間后後])": _cjk_day,
    r"(?<!\d)(\d{1,3}) ?(天|日|周|週間?|[个個かヶカ]月|年|일|주|개월|년) ?[前전]": lambda match, now: read_ago(
        now, _CJK_UNITS.get(match[2][0], "month"), int(match[1])
    ),
}

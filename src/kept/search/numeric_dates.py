"""Dates in digits: 2024-01-15, 2024/01/15, 15.01.2024, 01/15/2024, 2024年3月3日, 2024-W03, 3天前."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator
from operator import itemgetter

from kept.search.date_locale import DateLocale
from kept.search.periods import TimeReading, day_of, days_from, last_occurrences, month_of, read_ago, year_of

_Reader = Callable[[re.Match[str], dt.datetime, DateLocale], TimeReading | None]


def _iter_patterns(text: str) -> Iterator[tuple[str, _Reader]]:
    """Yield the patterns that may occur in a text. Each is compiled by `re` on first use: few queries need one."""
    if "-" in text or "/" in text or "." in text:
        yield r"(?<![\d.,/-])(\d{1,4})([-/.]) ?(\d{1,2})(?:\2 ?(\d{1,4}))?(?![\d/-])", _separated
    if "-W" in text or "-w" in text:
        yield r"(?<!\d)(\d{4})-[Ww](\d\d)(?!\d)", _iso_week
    if not text.isascii():
        yield r"(?<!\d)(\d{4}) ?[年년] ?(?:(\d{1,2}) ?[月월] ?(?:(\d{1,2}) ?[日号號일])?)?", _cjk_date
        yield r"(?<!\d)(\d{1,2}) ?[月월] ?(?:(\d{1,2}) ?[日号號일])?(?![前間间後后])", _cjk_day
        yield r"(?<!\d)(\d{1,3}) ?(天|日|周|週間|週|个月|個月|か月|ヶ月|カ月|年|일|주|개월|년) ?[前전]", _cjk_ago


def find_numeric(text: str, now: dt.datetime, locale: DateLocale) -> list[tuple[int, int, TimeReading]]:
    """Return start, end and reading of each date in digits that exists, in order and without overlaps."""
    dates: list[tuple[int, int, TimeReading]] = []
    if not any(map(str.isdigit, text)):
        return dates
    covered: list[tuple[int, int]] = []
    for pattern, reader in _iter_patterns(text):
        for match in re.finditer(pattern, text):
            start, end = match.span()
            if any(start < other_end and other_start < end for other_start, other_end in covered):
                continue
            covered.append((start, end))  # also a date that does not exist: no part of it is one
            try:
                reading = reader(match, now, locale)
            except (ValueError, OverflowError):
                continue
            if reading:
                dates.append((start, end, reading))
    return sorted(dates, key=itemgetter(0))


def is_ambiguous_date(text: str, locale: DateLocale) -> bool:
    """Return whether a text is a date such as 3/4/2024 in a locale that does not tell day from month."""
    match = re.fullmatch(r"\s*(\d{1,2})([/-])(\d{1,2})\2\d{4}\s*", text)
    return match is not None and locale.month_first is None and max(int(match[1]), int(match[3])) <= 12


def _separated(match: re.Match[str], now: dt.datetime, locale: DateLocale) -> TimeReading | None:
    """Read numbers with a separator: 2024-01-15, 2024/1/5, 15.01.2024, 01/15/2024, 2024-03. None is anything else."""
    first, separator, second, third = match.groups()
    if len(first) == 4 and third is None:
        is_month = separator == "-" and len(second) == 2
        return TimeReading("month", (month_of(int(first), int(second)),)) if is_month else None
    if len(first) == 4 and len(third) <= 2:
        return TimeReading("date", (day_of(dt.date(int(first), int(second), int(third))),))
    if len(first) > 2 or third is None or len(third) != 4:
        return None
    if separator == ".":
        return TimeReading("date", (day_of(dt.date(int(third), int(second), int(first))),))
    return _either_first(int(first), int(second), int(third), locale)


def _either_first(first: int, second: int, year: int, locale: DateLocale) -> TimeReading | None:
    """Read 01/15/2024 and 15/01/2024 by their values, and 3/4/2024 by the locale."""
    if first > 12 or second > 12 or first == second:
        month_first = second > 12
    elif locale.month_first is None:
        return None
    else:
        month_first = locale.month_first
    month, day = (first, second) if month_first else (second, first)
    return TimeReading("date", (day_of(dt.date(year, month, day)),))


def _iso_week(match: re.Match[str], now: dt.datetime, locale: DateLocale) -> TimeReading:
    monday = dt.date.fromisocalendar(int(match[1]), int(match[2]), 1)
    return TimeReading("week", (days_from(monday, 7),))


def _cjk_date(match: re.Match[str], now: dt.datetime, locale: DateLocale) -> TimeReading:
    year = int(match[1])
    if not match[2]:
        return TimeReading("year", (year_of(year),))
    if not match[3]:
        return TimeReading("month", (month_of(year, int(match[2])),))
    return TimeReading("date", (day_of(dt.date(year, int(match[2]), int(match[3]))),))


def _cjk_day(match: re.Match[str], now: dt.datetime, locale: DateLocale) -> TimeReading | None:
    periods = last_occurrences(int(match[1]), int(match[2]) if match[2] else None, now.date())
    return TimeReading("recurring", periods) if periods else None


_CJK_UNITS = {
    "天": "day",
    "日": "day",
    "일": "day",
    "周": "week",
    "週": "week",
    "주": "week",
    "年": "year",
    "년": "year",
}


def _cjk_ago(match: re.Match[str], now: dt.datetime, locale: DateLocale) -> TimeReading:
    unit = _CJK_UNITS.get(match[2][0], "month")
    return read_ago(now, unit, int(match[1]))

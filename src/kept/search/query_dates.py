"""Periods that a query names: "last week", "in March", "on 3 May 2023", "two months ago".

A chunk from such a period scores a little more. It is never a filter: people misremember, and an event of March is
often told in April. An ambiguous word counts only in the place of a date: "in May", not "may I". Periods are relative
to today. A month without a year is the last one; those of earlier years count half.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence

from kept.clock import DAY_MS
from kept.records import ScorePart
from kept.search import date_words
from kept.search.fuse import Scored, rank
from kept.search.weights import PERIOD_SHARE
from kept.values import frozen
from kept.words.folding import fold
from kept.words.segment import normalise

_EARLIER_YEARS, _EARLIER_WEIGHT = 5, 0.5
_MIN_MARGIN_DAYS, _MAX_MARGIN_DAYS = 2.0, 30.0
"""Bounds of the margin around a period in which a chunk still gains something."""

_WORD = re.compile(r"[^\W_]+")
_NUMERIC_DATE = re.compile(r"(?<!\d)(?:(\d{4})-(\d\d)(?:-(\d\d))?|(\d{1,2})\.(\d{1,2})\.(\d{4}))(?![\d-])")
_DAY = re.compile(r"(\d{1,2})(?:st|nd|rd|th|er)?")
_YEAR = re.compile(r"(?:19|20)\d\d")
_LONGEST_RELATIVE = max(map(len, date_words.RELATIVE))
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}
_MAX_DAYS_AGO = 36_500
_ONE_DAY = dt.timedelta(days=1)


@frozen
class Period:
    """Days from ``start`` up to but not including ``end``."""

    start: dt.date
    end: dt.date
    weight: float = 1.0


# scoring


def boost_periods(ranked: Sequence[Scored], periods: Sequence[Period], *, now_ms: int) -> list[Scored]:
    """Add to the score of chunks from these periods or close to them, and rank again."""
    if not periods:
        return list(ranked)
    bounds = [(_to_ms(period.start), _to_ms(period.end), period.weight) for period in periods]
    return rank(_boost(scored, now_ms - round(scored.candidate.age_days * DAY_MS), bounds) for scored in ranked)


def _boost(scored: Scored, timestamp_ms: int, bounds: Sequence[tuple[int, int, float]]) -> Scored:
    closeness = max(weight * _closeness(timestamp_ms, start, end) for start, end, weight in bounds)
    gain = min(PERIOD_SHARE * closeness, 1.0 - scored.score)
    reason = "from that time" if closeness >= 1 else "near that time"
    return scored.plus(ScorePart("when", gain, reason)) if gain > 0 else scored


def _closeness(timestamp_ms: int, start_ms: int, end_ms: int) -> float:
    """Return 1 inside a period, falling to 0 at the end of the margin around it."""
    days_outside = max(start_ms - timestamp_ms, timestamp_ms - end_ms, 0) / DAY_MS
    margin = min(max(_MIN_MARGIN_DAYS, (end_ms - start_ms) / DAY_MS / 2), _MAX_MARGIN_DAYS)
    return max(0.0, 1.0 - days_outside / margin)


def _to_ms(day: dt.date) -> int:
    try:
        return int(dt.datetime(day.year, day.month, day.day).astimezone().timestamp() * 1000)
    except (OverflowError, OSError, ValueError):  # the year 1 has no local time
        return int(dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC).timestamp() * 1000)


# reading


def find_periods(query: str, today: dt.date) -> list[Period]:
    """Return the periods that a query names."""
    text = fold(normalise(query))
    periods = [*_numeric_dates(text)] if "-" in text or "." in text else []
    words = _WORD.findall(_NUMERIC_DATE.sub(" ", text) if periods else text)
    return periods + _PeriodReader(words, today).read()


def _numeric_dates(text: str) -> Iterator[Period]:
    for match in _NUMERIC_DATE.finditer(text):
        year, month, day, last_day, last_month, last_year = (int(group) if group else None for group in match.groups())
        yield from _calendar_period(year or last_year, month or last_month, day or last_day)


def _calendar_period(year: int | None, month: int | None, day: int | None) -> Iterator[Period]:
    """Yield the day, or the month if no day is given. Yield nothing for a date that does not exist."""
    try:
        if year and month:
            start = dt.date(year, month, day or 1)
            yield Period(start, start + _ONE_DAY if day else _next_month(start))
    except (ValueError, OverflowError):
        return


def _next_month(day: dt.date) -> dt.date:
    return dt.date(day.year + day.month // 12, day.month % 12 + 1, 1)


class _PeriodReader:
    """Reader of a query, word by word."""

    def __init__(self, words: Sequence[str], today: dt.date) -> None:
        self.original_words = words
        self.words = [word.lower() for word in words]
        self.today = today

    def read(self) -> list[Period]:
        return [period for at in range(len(self.words)) for period in self._periods_at(at)]

    def _periods_at(self, at: int) -> Iterator[Period]:
        word = self.words[at]
        if word in date_words.MONTHS:
            yield from self._month(at)
        elif word in date_words.UNITS:
            yield from self._units(at)
        elif word in date_words.WEEKDAYS and self._word(at - 1) in date_words.ON:
            yield self._last_weekday(date_words.WEEKDAYS[word])
        elif _YEAR.fullmatch(word) and self._word(at - 1) in date_words.IN:
            yield Period(dt.date(int(word), 1, 1), dt.date(int(word) + 1, 1, 1))
        for length in range(1, min(_LONGEST_RELATIVE, len(self.words) - at) + 1):
            relative = date_words.RELATIVE.get(tuple(self.words[at : at + length]))
            if relative:
                yield self._relative(*relative)

    def _word(self, at: int) -> str:
        return self.words[at] if 0 <= at < len(self.words) else ""

    def _month(self, at: int) -> Iterator[Period]:
        month = date_words.MONTHS[self.words[at]]
        day, year, is_date = self._day_and_year(at)
        is_unambiguous = self.words[at] not in date_words.AMBIGUOUS or self._word(at - 1) in date_words.IN
        is_date = is_date or is_unambiguous
        if day is not None and is_date:
            yield from _calendar_period(year, month, day) if year else self._recurring(month, day)
        elif year:
            yield from _calendar_period(year, month, None)
        elif is_date:
            yield from self._recurring(month, None)

    def _day_and_year(self, at: int) -> tuple[int | None, int | None, bool]:
        """Return the day and the year beside a month, and whether they prove a date: "May 5" does, "may 5" does not."""
        before = at - 2 if self._word(at - 1) in date_words.OF else at - 1
        day, after = _day_number(self._word(before)), at + 1
        is_date = day is not None
        if day is None and (day := _day_number(self._word(after))) is not None:
            is_date = self.original_words[at][0].isupper() or not self._word(after).isdigit()
            after += 1
        if self._word(after) in date_words.OF:
            after += 1
        year = self._word(after)
        return day, int(year) if _YEAR.fullmatch(year) else None, is_date

    def _recurring(self, month: int, day: int | None) -> Iterator[Period]:
        """Yield a date without a year: its last occurrence, and those of earlier years at a lower weight."""
        has_been = (month, day or 1) <= (self.today.month, self.today.day)
        last_year = self.today.year if has_been else self.today.year - 1
        for back in range(1 + _EARLIER_YEARS):
            for period in _calendar_period(last_year - back, month, day):
                yield Period(period.start, period.end, _EARLIER_WEIGHT if back else 1.0)

    def _units(self, at: int) -> Iterator[Period]:
        """Read "three weeks ago", "vor drei Wochen" and "the last three weeks"."""
        number, unit = self._number(at - 1), date_words.UNITS[self.words[at]]
        if number is None:
            return
        before = at - 2 if self._word(at - 2) != "of" else at - 3  # "a couple of days"
        span = dt.timedelta(days=min(number * _UNIT_DAYS[unit], _MAX_DAYS_AGO))
        is_ago = self._word(at + 1) in date_words.AGO_AFTER or self._word(before) in date_words.AGO_BEFORE
        if is_ago or self.words[max(0, before - 2) : before + 1] == ["il", "y", "a"]:
            half_unit = dt.timedelta(days=_UNIT_DAYS[unit] // 2)
            yield Period(self.today - span - half_unit, self.today - span + half_unit + _ONE_DAY)
        elif self._word(before) in date_words.LAST:
            yield Period(self.today - span, self.today + _ONE_DAY)

    def _number(self, at: int) -> int | None:
        word = self._word(at - 1 if self._word(at) == "of" else at)
        return int(word) if word.isdecimal() and len(word) < 4 else date_words.NUMBERS.get(word)

    def _last_weekday(self, weekday: int) -> Period:
        """Return the last such day before today."""
        days_back = (self.today.weekday() - weekday - 1) % 7 + 1
        day = self.today - dt.timedelta(days=days_back)
        return Period(day, day + _ONE_DAY)

    def _relative(self, unit: str, number: int) -> Period:
        """Return the period ``number`` units from now: ("week", -1) is last week."""
        today = self.today
        monday = today - dt.timedelta(days=today.weekday())
        match unit:
            case "day":
                return Period(today + number * _ONE_DAY, today + (number + 1) * _ONE_DAY)
            case "week":
                return Period(monday + number * 7 * _ONE_DAY, monday + (number + 1) * 7 * _ONE_DAY)
            case "weekend":
                return Period(monday - 2 * _ONE_DAY, monday)
            case "month":
                first = today.replace(day=1)
                if number == 0:
                    return Period(first, today + _ONE_DAY)
                return Period((first - _ONE_DAY).replace(day=1), first)
            case _:
                return Period(dt.date(today.year + number, 1, 1), dt.date(today.year + number + 1, 1, 1))


def _day_number(word: str) -> int | None:
    match = _DAY.fullmatch(word)
    return int(match.group(1)) if match and 1 <= int(match.group(1)) <= 31 else None

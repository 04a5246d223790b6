"""When a question is about: "last week", "in March", "on 3 May 2023", "two months ago".

What is from that time gets a little more score. It is never a filter: people misremember, and what happened in March is
often told in April. Words that may mean something else count only where they stand as a date: "in May", not "may I".
Times are counted from today. A month without a year is the last one; those of the years before count half.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence

from kept.records import ScorePart
from kept.search import timewords as tw
from kept.search.fuse import Scored
from kept.values import frozen
from kept.words.folding import fold
from kept.words.segment import normalise

SHARE = 0.15
"""The most that being from that time can add."""
_EARLIER_YEARS, _EARLIER = 5, 0.5
_DAY_MS = 86_400_000
_LEAST_GRACE, _MOST_GRACE = 2.0, 30.0
"""Days around a time that count in part."""

_WORD = re.compile(r"[^\W_]+")
_NUMERIC = re.compile(r"(?<!\d)(?:(\d{4})-(\d\d)(?:-(\d\d))?|(\d{1,2})\.(\d{1,2})\.(\d{4}))(?![\d-])")
_DAY = re.compile(r"(\d{1,2})(?:st|nd|rd|th|er)?")
_YEAR = re.compile(r"(?:19|20)\d\d")
_LONGEST_RELATIVE = max(map(len, tw.RELATIVE))
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}


@frozen
class Period:
    """Days from ``start`` up to but not including ``end``."""

    start: dt.date
    end: dt.date
    weight: float = 1.0


def spells_in(query: str, today: dt.date) -> list[Period]:
    """The times that a query names."""
    text = fold(normalise(query))
    spells = [*_numeric(text)] if "-" in text or "." in text else []
    reader = _PeriodReader(_WORD.findall(_NUMERIC.sub(" ", text) if spells else text), today)
    return spells + reader.read()


def add_times(ranked: Sequence[Scored], spells: Sequence[Period], *, now_ms: int) -> list[Scored]:
    """Gives what is from one of these times its part, and ranks anew."""
    if not spells:
        return list(ranked)
    bounds = [(_ms(one.start), _ms(one.end), one.weight) for one in spells]
    scored = [_with_time(one, now_ms - round(one.candidate.age_days * _DAY_MS), bounds) for one in ranked]
    return sorted(scored, key=Scored.rank)


def _with_time(one: Scored, at_ms: int, bounds: Sequence[tuple[int, int, float]]) -> Scored:
    nearness = max(weight * _nearness(at_ms, start, end) for start, end, weight in bounds)
    value = min(SHARE * nearness, 1.0 - one.score)
    where = "from that time" if nearness >= 1 else "near that time"
    return one.plus(ScorePart("when", value, where)) if value > 0 else one


def _nearness(at: int, start: int, end: int) -> float:
    """1 inside, and less the farther outside, down to 0."""
    outside = max(start - at, at - end, 0) / _DAY_MS
    grace = min(max(_LEAST_GRACE, (end - start) / _DAY_MS / 2), _MOST_GRACE)
    return max(0.0, 1.0 - outside / grace)


def _ms(day: dt.date) -> int:
    try:
        return int(dt.datetime(day.year, day.month, day.day).astimezone().timestamp() * 1000)
    except (OverflowError, OSError, ValueError):  # the year 1 has no local time
        return int(dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC).timestamp() * 1000)


def _numeric(text: str) -> Iterator[Period]:
    for found in _NUMERIC.finditer(text):
        year, month, day, local_day, local_month, local_year = (int(one) if one else None for one in found.groups())
        yield from _date(year or local_year, month or local_month, day or local_day)


def _date(year: int | None, month: int | None, day: int | None) -> Iterator[Period]:
    """A day, or a month where there is none. Nothing where the calendar has no such day."""
    try:
        if year and month:
            start = dt.date(year, month, day or 1)
            yield Period(start, start + dt.timedelta(days=1) if day else _month_after(start))
    except (ValueError, OverflowError):
        return


def _month_after(day: dt.date) -> dt.date:
    return dt.date(day.year + day.month // 12, day.month % 12 + 1, 1)


class _PeriodReader:
    """Reads a query word by word."""

    def __init__(self, words: Sequence[str], today: dt.date) -> None:
        self.raw = words
        self.words = [word.lower() for word in words]
        self.today = today

    def read(self) -> list[Period]:
        return [spell for at in range(len(self.words)) for spell in self._at(at)]

    def _at(self, at: int) -> Iterator[Period]:
        word = self.words[at]
        if word in tw.MONTHS:
            yield from self._month(at)
        elif word in tw.UNITS:
            yield from self._units(at)
        elif word in tw.WEEKDAYS and self._word(at - 1) in tw.ON:
            yield self._weekday(tw.WEEKDAYS[word])
        elif _YEAR.fullmatch(word) and self._word(at - 1) in tw.IN:
            yield Period(dt.date(int(word), 1, 1), dt.date(int(word) + 1, 1, 1))
        for length in range(1, min(_LONGEST_RELATIVE, len(self.words) - at) + 1):
            found = tw.RELATIVE.get(tuple(self.words[at : at + length]))
            if found:
                yield self._relative(*found)

    def _word(self, at: int) -> str:
        return self.words[at] if 0 <= at < len(self.words) else ""

    def _month(self, at: int) -> Iterator[Period]:
        month = tw.MONTHS[self.words[at]]
        day, year, is_sure = self._beside(at)
        is_sure = is_sure or self.words[at] not in tw.AMBIGUOUS or self._word(at - 1) in tw.IN
        if day is not None and is_sure:
            yield from _date(year, month, day) if year else self._recurring(month, day)
        elif year:
            yield from _date(year, month, None)
        elif is_sure:
            yield from self._recurring(month, None)

    def _beside(self, at: int) -> tuple[int | None, int | None, bool]:
        """The day and the year beside a month, and whether they make it one: "may 5 people" is no date, "May 5" is."""
        before = at - 2 if self._word(at - 1) in tw.OF else at - 1
        day, after = _day(self._word(before)), at + 1
        is_sure = day is not None
        if day is None and (day := _day(self._word(after))) is not None:
            is_sure = self.raw[at][0].isupper() or not self._word(after).isdigit()
            after += 1
        if self._word(after) in tw.OF:
            after += 1
        year = self._word(after)
        return day, int(year) if _YEAR.fullmatch(year) else None, is_sure

    def _recurring(self, month: int, day: int | None) -> Iterator[Period]:
        last = self.today.year if (month, day or 1) <= (self.today.month, self.today.day) else self.today.year - 1
        for back in range(1 + _EARLIER_YEARS):
            for spell in _date(last - back, month, day):
                yield Period(spell.start, spell.end, _EARLIER if back else 1.0)

    def _units(self, at: int) -> Iterator[Period]:
        """ "Three weeks ago", "vor drei Wochen", "the last three weeks"."""
        number, unit = self._number(at - 1), tw.UNITS[self.words[at]]
        if number is None:
            return
        first = at - 2 if self._word(at - 2) != "of" else at - 3  # "a couple of days"
        span = dt.timedelta(days=min(number * _UNIT_DAYS[unit], 36_500))
        ago = self._word(at + 1) in tw.AGO_AFTER or self._word(first) in tw.AGO_BEFORE
        if ago or self.words[max(0, first - 2) : first + 1] == ["il", "y", "a"]:
            around = dt.timedelta(days=_UNIT_DAYS[unit] // 2)
            yield Period(self.today - span - around, self.today - span + around + dt.timedelta(days=1))
        elif self._word(first) in tw.LAST:
            yield Period(self.today - span, self.today + dt.timedelta(days=1))

    def _number(self, at: int) -> int | None:
        word = self._word(at - 1 if self._word(at) == "of" else at)
        return int(word) if word.isdecimal() and len(word) < 4 else tw.NUMBERS.get(word)

    def _weekday(self, weekday: int) -> Period:
        """The last one before today."""
        back = (self.today.weekday() - weekday - 1) % 7 + 1
        day = self.today - dt.timedelta(days=back)
        return Period(day, day + dt.timedelta(days=1))

    def _relative(self, unit: str, number: int) -> Period:
        today, one = self.today, dt.timedelta(days=1)
        monday = today - dt.timedelta(days=today.weekday())
        match unit:
            case "day":
                return Period(today + number * one, today + (number + 1) * one)
            case "week":
                return Period(monday + number * 7 * one, monday + (number + 1) * 7 * one)
            case "weekend":
                return Period(monday - 2 * one, monday)
            case "month":
                first = today.replace(day=1)
                return Period(first, today + one) if number == 0 else Period((first - one).replace(day=1), first)
            case _:
                return Period(dt.date(today.year + number, 1, 1), dt.date(today.year + number + 1, 1, 1))


def _day(word: str) -> int | None:
    found = _DAY.fullmatch(word)
    return int(found.group(1)) if found and 1 <= int(found.group(1)) <= 31 else None

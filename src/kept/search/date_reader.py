"""Reading the times that a text names: "last week", "on 3 May 2023", "two months ago", 01/15/2024.

Everything is relative to the local time of the clock. A text is cut into tokens, dates in digits first; the grammar
(`WordReader`) reads them from left to right, with the words in `date_words`; and neighbours that are one expression are
joined. An ambiguous word counts only in the place of a date: "in May", not "may I". A date without a year is the last
one; those of earlier years count half.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache

from kept.base.values import frozen
from kept.base.words.segment import fold, normalise
from kept.search import date_words
from kept.search.date_words import (
    Period,
    TimeKind,
    TimeReading,
    day_of,
    find_numeric,
    last_occurrences,
    period_of,
    read_ago,
    read_date,
    shift,
)

_WORD = r"[^\W_]+"
_MAX_CHARS = 1_000
"""A longer text is not a question about a time."""
_JOINING = frozenset("the of on in de del den dem der el la le il".split())
_ONE_DAY = dt.timedelta(days=1)
_DAY_ENDINGS = ("", "st", "nd", "rd", "th", "er", "e")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_LONGEST_PHRASE = max(map(len, date_words.RELATIVE))


_KIND_AND_STEP: dict[str, tuple[TimeKind, str]] = {
    **{unit: (unit, unit) for unit in ("day", "week", "month", "year")},
    "weekend": ("span", "week"),
}
"""Kind of the reading of a unit, and what a number of them is counted in. All others are parts of a day."""


@frozen
class Token:
    """A word, or a whole date in digits, which already has its reading."""

    text: str
    start: int
    end: int
    is_capital: bool = False
    reading: TimeReading | None = None


@frozen
class TimeMention:
    """A time expression: the tokens from ``first`` up to but not including ``last``."""

    first: int
    last: int
    reading: TimeReading


@frozen
class TimeText:
    """A text with the times that it names."""

    text: str
    tokens: tuple[Token, ...]
    mentions: tuple[TimeMention, ...]

    def expression(self, first: TimeMention, last: TimeMention) -> str:
        """Return the words of a time expression as they were written."""
        return self.text[self.tokens[first.first].start : self.tokens[last.last - 1].end]


def read_times(text: str, now: dt.datetime) -> TimeText:
    """Return the times that a text names, in order."""
    text = normalise(text[:_MAX_CHARS])
    folded = fold(text)
    tokens: list[Token] = []
    at = 0
    for start, end, reading in find_numeric(folded, now):
        tokens += [*_iter_words(folded, at, start), Token(folded[start:end], start, end, reading=reading)]
        at = end
    tokens += _iter_words(folded, at, len(folded))
    mentions = WordReader(tokens, now).read()
    if len(mentions) > 1:
        mentions = _join_neighbours(mentions, tokens)
    return TimeText(text if len(text) == len(folded) else folded, tuple(tokens), tuple(mentions))


# tokens


def _iter_words(text: str, start: int, end: int) -> Iterator[Token]:
    for match in re.compile(_WORD).finditer(text, start, end):
        word = match.group()
        if word.isascii():
            yield Token(word.lower(), match.start(), match.end(), word[0].isupper())
            continue
        word = word.lower() if len(word.lower()) == len(word) else word
        for part in _unspaced_parts().finditer(word):
            yield Token(part.group(), match.start() + part.start(), match.start() + part.end())


@cache
def _unspaced_parts() -> re.Pattern[str]:
    """Return the pattern of a time word in a run of characters, or of what is between two. Most words have none."""
    words = "|".join(sorted((word for (word,) in date_words.UNSPACED), key=len, reverse=True))
    return re.compile(f"{words}|(?:(?!{words}).)+")


# the grammar


class WordReader:
    """Reads tokens from left to right. The longest expression at a place counts."""

    def __init__(self, tokens: Sequence[Token], now: dt.datetime) -> None:
        self.tokens = tokens
        self.words = [token.text for token in tokens]
        self.now = now
        self.today = now.date()

    def read(self) -> list[TimeMention]:
        mentions: list[TimeMention] = []
        at = 0
        while at < len(self.words):
            try:
                mention = self._read_at(at)
            except (ValueError, OverflowError):  # a day that does not exist, or before the year 1
                mention = None
            if mention and (not mentions or mention.first >= mentions[-1].last):
                mentions.append(mention)
                at = max(at + 1, mention.last)
            else:
                at += 1
        return mentions

    def _read_at(self, at: int) -> TimeMention | None:
        word, token = self.words[at], self.tokens[at]
        if token.reading:
            return TimeMention(at, at + 1, token.reading)
        if relative := self._relative(at):
            return relative
        if word in date_words.MONTHS and (month := self._month(at)):
            return month
        if word in date_words.UNITS:
            return self._units(at)
        if word in date_words.WEEKDAYS:
            return self._weekday(at)
        if (year := _year_number(word)) and self._word(at - 1) in date_words.IN:
            return TimeMention(at, at + 1, read_date(year))
        return None

    def _word(self, at: int) -> str:
        return self.words[at] if 0 <= at < len(self.words) else ""

    # relative to today

    def _relative(self, at: int) -> TimeMention | None:
        for length in range(min(_LONGEST_PHRASE, len(self.words) - at), 0, -1):
            phrase = tuple(self.words[at : at + length])
            # "hier" may be German for here, and "morgen" a greeting.
            is_here = phrase == ("hier",) and not date_words.GERMAN.isdisjoint(self.words)
            is_greeting = phrase == ("morgen",) and self._word(at - 1) in date_words.GREETINGS
            if phrase in date_words.RELATIVE and not is_here and not is_greeting:
                unit, number = date_words.RELATIVE[phrase]  # ("week", -1) is last week
                kind, step = _KIND_AND_STEP.get(unit, ("span", "day"))
                reading = TimeReading(kind, (period_of(unit, shift(self.today, step, number)),))
                return TimeMention(at, at + length, reading)
        return None

    # weekdays

    def _weekday(self, at: int) -> TimeMention | None:
        word, before, after = self.words[at], self._word(at - 1), self._word(at + 1)
        if word in date_words.SHORT_WEEKDAYS and before not in date_words.ON:
            return None
        number = date_words.WEEKDAYS[word]
        first, last = at, at + 1
        beside = date_words.LAST_DAY | date_words.NEXT_DAY
        is_other = tuple(self.words[at + 1 : at + 3]) in date_words.RELATIVE  # "last" belongs to "last week"
        if before in beside | date_words.THIS:
            first = at - 1
        elif after == "s" or (after in beside and not is_other):  # "Thursday's", "jueves pasado"
            last = at + 2
        days = (number - self.today.weekday() - 1) % 7 + 1  # to the next such day, not today
        if date_words.NEXT_DAY.isdisjoint((self.words[first], self.words[last - 1])):
            is_this_week = before in date_words.THIS
            days = number - self.today.weekday() if is_this_week else days - 7 if days < 7 else -7
        return TimeMention(first, last, TimeReading("weekday", (day_of(self.today + dt.timedelta(days=days)),)))

    # dates

    def _month(self, at: int) -> TimeMention | None:
        month = date_words.MONTHS[self.words[at]]
        first, last, day, year = self._day_and_year(at)
        before = self._word(at - 1)
        is_ambiguous = self.words[at] in date_words.AMBIGUOUS
        # The number after a month is its day in "May 5"; in "may 5" it may be anything.
        is_day = day is not None and (
            self.tokens[at].is_capital or not is_ambiguous or not self._word(at + 1).isdigit()
        )
        is_date = first < at or is_day or year is not None
        # An ambiguous word is a month in "in May" and "May last year", or alone.
        is_alone = len(self.words) == 1 and self.tokens[at].is_capital
        year_follows = date_words.RELATIVE.get(tuple(self.words[at + 1 : at + 3]), ("",))[0] == "year"
        if is_ambiguous and not (is_date or is_alone or year_follows or before in date_words.IN):
            return None
        if year:
            return TimeMention(first, last, read_date(year, month, day))
        if day and not is_date:
            day, last = None, at + 1
        periods = last_occurrences(month, day, self.today, before=before in date_words.LAST and day is None)
        return TimeMention(first, last, TimeReading("recurring", periods)) if periods else None

    def _day_and_year(self, at: int) -> tuple[int, int, int | None, int | None]:
        """Return the range of a date around a month, its day and its year."""
        first, last = at, at + 1
        before = at - 2 if self._word(at - 1) in date_words.OF else at - 1
        day = _day_number(self._word(before))
        if day is not None:
            first = before
        elif (day := _day_number(self._word(last))) is not None:
            last += 1
        after = last + 1 if self._word(last) in date_words.OF else last
        year = _year_number(self._word(after))
        if year is not None:
            last = after + 1
        return first, last, day, year

    # amounts

    def _units(self, at: int) -> TimeMention | None:
        """Read "three weeks ago", "vor drei Wochen" and "the last three weeks"."""
        unit = date_words.UNITS[self.words[at]]
        first = at - 2 if self._word(at - 1) == "of" else at - 1  # "a couple of days"
        number = self._number(first)
        if number is None:
            is_past = self._word(at - 1) in ("past", "vergangene")
            return TimeMention(at - 1, at + 1, self._up_to_now(unit, 1)) if is_past else None
        if self._word(first - 1) in ("a", "the") and self._word(first) in ("couple", "few"):
            first -= 1
        before, after = self._word(first - 1), self._word(at + 1)
        if after in date_words.AGO_AFTER:
            return TimeMention(first, at + 2, read_ago(self.now, unit, number))
        if before in date_words.AGO_BEFORE:
            return TimeMention(first - 1, at + 1, read_ago(self.now, unit, number))
        if self.words[max(0, first - 3) : first] == ["il", "y", "a"]:
            return TimeMention(first - 3, at + 1, read_ago(self.now, unit, number))
        if before in date_words.LAST:
            return TimeMention(first - 1, at + 1, self._up_to_now(unit, number))
        return None

    def _number(self, at: int) -> int | None:
        word = self._word(at)
        return int(word) if word.isdecimal() and len(word) < 4 else date_words.NUMBERS.get(word)

    def _up_to_now(self, unit: str, number: int) -> TimeReading:
        """Return the time from ``number`` units ago until now, the whole of today included."""
        exact = read_ago(self.now, unit, number).exact
        assert exact is not None
        return TimeReading("span", (Period(exact.start, day_of(self.today).end),))


def _day_number(word: str) -> int | None:
    """Return the day of a month that a word is: 3, 3rd, 1er."""
    digits = word.rstrip(_LETTERS)
    if not digits.isdecimal() or len(digits) > 2 or word[len(digits) :] not in _DAY_ENDINGS:
        return None
    return int(digits) if 1 <= int(digits) <= 31 else None


def _year_number(word: str) -> int | None:
    return int(word) if len(word) == 4 and word.isdecimal() and word.startswith(("19", "20")) else None


# expressions of two parts


def _join_neighbours(mentions: Sequence[TimeMention], tokens: Sequence[Token]) -> list[TimeMention]:
    """Join "Thursday, 12 November", "Thursday of last week" and "March last year"."""
    joined = [mentions[0]]
    for mention in mentions[1:]:
        before = joined[-1]
        gap = tokens[before.last : mention.first]
        reading = None
        if len(gap) <= 2 and all(token.text in _JOINING for token in gap):
            reading = _joined(before.reading, mention.reading) or _joined(mention.reading, before.reading)
        if reading:
            joined[-1] = TimeMention(before.first, mention.last, reading)
        else:
            joined.append(mention)
    return joined


def _joined(part: TimeReading, whole: TimeReading) -> TimeReading | None:
    """Return what two readings mean together, or None."""
    period = part.periods[0]
    if part.kind == "weekday" and whole.kind in ("date", "recurring") and _is_day(whole.periods[0]):
        return whole
    if part.kind == "weekday" and whole.kind == "week":
        start = whole.periods[0].start
        day = start + dt.timedelta(days=(period.start.weekday() - start.weekday()) % 7)
        return TimeReading("date", (day_of(day.date()),))
    if part.kind == "recurring" and whole.kind == "year":
        start = period.start
        with suppress(ValueError):  # last year had no 29 February
            return read_date(whole.periods[0].start.year, start.month, start.day if _is_day(period) else None)
    return None


def _is_day(period: Period) -> bool:
    return period.end - period.start == _ONE_DAY

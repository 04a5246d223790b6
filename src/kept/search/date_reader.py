"""Reading the times that a text names: "last week", "on 3 May 2023", "two months ago", 01/15/2024.

Everything is relative to the local time of the clock. `date_grammar` reads words and `numeric_dates` digits; here a
text is cut into tokens for them, and neighbours that are one expression are joined.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from functools import cache

from kept.search import date_words
from kept.search.date_grammar import TimeMention, Token, WordReader
from kept.search.date_locale import DateLocale
from kept.search.numeric_dates import find_numeric
from kept.search.periods import Period, TimeReading, day_of, week_of
from kept.values import frozen
from kept.words.segment import fold, normalise

_WORD = r"[^\W_]+"
_MAX_CHARS = 1_000
"""A longer text is not a question about a time."""
_JOINING = frozenset("the of on in de del den dem der el la le il".split())
_ONE_DAY = dt.timedelta(days=1)


@frozen
class TimeText:
    """A text with the times that it names."""

    text: str
    tokens: tuple[Token, ...]
    mentions: tuple[TimeMention, ...]

    def expression(self, mention: TimeMention) -> str:
        """Return the words of a time expression as they were written."""
        return self.text[self.tokens[mention.first].start : self.tokens[mention.last - 1].end]


def read_times(text: str, now: dt.datetime, locale: DateLocale) -> TimeText:
    """Return the times that a text names, in order."""
    text = normalise(text[:_MAX_CHARS])
    folded = fold(text)
    tokens = tuple(_iter_tokens(folded, now, locale))
    mentions = WordReader(tokens, now, locale).read()
    if len(mentions) > 1:
        mentions = _join_neighbours(mentions, tokens)
    if len(tokens) > 2:
        mentions = [_week_of_day(mention, tokens, locale) for mention in mentions]
    return TimeText(text if len(text) == len(folded) else folded, tokens, tuple(mentions))


# tokens


def _iter_tokens(text: str, now: dt.datetime, locale: DateLocale) -> Iterator[Token]:
    at = 0
    for start, end, reading in find_numeric(text, now, locale):
        yield from _iter_words(text, at, start)
        yield Token(text[start:end], start, end, reading=reading)
        at = end
    yield from _iter_words(text, at, len(text))


def _iter_words(text: str, start: int, end: int) -> Iterator[Token]:
    for match in re.compile(_WORD).finditer(text, start, end):
        word = match.group()
        if word.isascii():
            yield Token(word.lower(), match.start(), match.end(), word[0].isupper())
        else:
            yield from _iter_unspaced(word.lower() if len(word.lower()) == len(word) else word, match.start())


def _iter_unspaced(word: str, start: int) -> Iterator[Token]:
    """Yield the time words in a run of characters, and what is between them. Most words are yielded as they are."""
    at = 0
    for match in _unspaced_words().finditer(word):
        if match.start() > at:
            yield Token(word[at : match.start()], start + at, start + match.start())
        yield Token(match.group(), start + match.start(), start + match.end())
        at = match.end()
    if at < len(word):
        yield Token(word[at:], start + at, start + len(word))


@cache
def _unspaced_words() -> re.Pattern[str]:
    words = {**date_words.unspaced_relative(), **date_words.unspaced_weekdays()}
    return re.compile("|".join(sorted(words, key=len, reverse=True)))


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
        years = whole.periods[0].start.year - period.start.year
        moved = Period(_in_year(period.start, years), _in_year(period.end, years))
        return TimeReading("date" if _is_day(period) else "month", (moved,))
    return None


def _is_day(period: Period) -> bool:
    return period.end - period.start == _ONE_DAY


def _in_year(moment: dt.datetime, years_later: int) -> dt.datetime:
    try:
        return moment.replace(year=moment.year + years_later)
    except ValueError:  # 29 February
        return moment.replace(year=moment.year + years_later, month=3, day=1)


def _week_of_day(mention: TimeMention, tokens: Sequence[Token], locale: DateLocale) -> TimeMention:
    """Return the week of a day for "week of 3 March", or else the mention as it is."""
    first = mention.first
    if first > 2 and tokens[first - 1].text in date_words.ARTICLES:
        first -= 1
    before = [token.text for token in tokens[max(0, first - 2) : first]]
    if len(before) < 2 or date_words.UNITS.get(before[0]) != "week" or before[1] not in date_words.WEEK_OF:
        return mention
    week = week_of(mention.reading.periods[0].start.date(), locale.first_weekday)
    return TimeMention(first - 2, mention.last, TimeReading("week", (week,)))

"""Times in a query: "last week", "in March", "on 3 May 2023", "two months ago".

A query that is nothing but a time ("yesterday", "what did I do last week", "notes from Wednesday", "12 November") is
answered by a list of that time. Beside the time it may have words that say nothing about the content: stopwords and
words such as "notes" or "happened".

In any other query a time is not a filter: people misremember, and an event of March is often told in April. A chunk
from such a period scores a little more.

`parse_when` reads the dates that limit a search: 2026-03-01, 2026-03-01T14:00, yesterday, 7d, "last Thursday".
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.base.clock import DAY_MS
from kept.base.records import Filter
from kept.base.values import frozen
from kept.base.words.segment import is_unspaced
from kept.base.words.stopwords import ENGLISH, all_stopwords, is_stopword_run, stopwords_for
from kept.errors import UsageError
from kept.search import date_words
from kept.search.date_words import Period, day_of, to_ms
from kept.search.scores import Scored, rank
from kept.search.weights import PERIOD_SHARE

if TYPE_CHECKING:
    from kept.search.date_reader import TimeMention, TimeText

_MAX_CHARS = 120
_QUOTES = '"“„«»「『'
"""What is quoted is looked for as it is written."""
_MIN_MARGIN_DAYS, _MAX_MARGIN_DAYS = 2.0, 30.0
"""Bounds of the margin around a period in which a chunk still gains something."""

_BOUNDS = date_words.SINCE | date_words.UNTIL | date_words.AFTER
_AROUND_DATE = frozenset("the in on from am vom im el le la il".split())
_AGO = r"(\d{1,6})\s*(h|d|w|m|y)"
_UNIT_HOURS = {"h": 1, "d": 24, "w": 24 * 7, "m": 24 * 30, "y": 24 * 365}
_PYTHON_HINT = "Use a datetime, a date, a timedelta, or a text such as 'yesterday' or '2026-03-01'."
_HINT = "Write 2026-03-01, 2026-03-01T14:00, yesterday, 7d, 'last Thursday' or '12 November'."

When = str | dt.date | dt.datetime | dt.timedelta
"""A point in time. A timedelta is that long ago."""


@frozen
class TimeQuery:
    """A query that is only a time."""

    since: dt.datetime | None
    """Local time. None has no beginning."""
    until: dt.datetime | None
    """The first moment after it, or None."""
    text: str
    """How the query was read: "yesterday = 2026-11-15"."""
    is_calendar: bool
    """True for "12 November", which notes of other days may mention too; False for "yesterday"."""

    def may_be_mentioned(self, now: dt.datetime) -> bool:
        """Return whether notes that are not from this time may mention it: a date, or a time to come."""
        return self.is_calendar or (self.since is not None and self.since > now.replace(tzinfo=None))


def may_name_time(text: str) -> bool:
    """Return whether the grammar of time expressions is worth loading. For most queries it is not."""
    if not text.isascii() or any(map(str.isdigit, text)):
        return True
    return not date_words.TELLING.isdisjoint(re.findall(r"[^\W_]+", text.lower()))


# a query that is only a time


def read_time_query(query: str, now: dt.datetime, limits: Filter) -> TimeQuery | None:
    """Return the time that a query asks for, or None if it asks for more than a time. An empty query asks for all that
    is within the limits, if they are of time."""
    if query.strip() in ("", "*") and (limits.since_ms is not None or limits.until_ms is not None):
        bounds = (limits.since_ms, limits.until_ms)
        since, until = (None if ms is None else dt.datetime.fromtimestamp(ms / 1000) for ms in bounds)
        return TimeQuery(None, None, describe_period(since, until), is_calendar=False)
    if len(query) > _MAX_CHARS or any(mark in query for mark in _QUOTES) or not may_name_time(query):
        return None
    from kept.search.date_reader import read_times

    text = read_times(query, now)
    if not 1 <= len(text.mentions) <= 2 or not _is_rest_general(text):
        return None
    return _two_times(text) if len(text.mentions) == 2 else _one_time(text)


def narrow_filter(filters: Filter, time_query: TimeQuery) -> Filter:
    """Return a filter that also leaves out everything from other times."""
    since_ms, until_ms = filters.since_ms, filters.until_ms
    if time_query.since:
        since = to_ms(time_query.since)
        since_ms = since if since_ms is None else max(since, since_ms)
    if time_query.until:
        until = to_ms(time_query.until)
        until_ms = until if until_ms is None else min(until, until_ms)
    return replace(filters, since_ms=since_ms, until_ms=until_ms)


def describe_period(since: dt.datetime | None, until: dt.datetime | None) -> str:
    """Return a period for people: 2026-11-15, or 2026-11-09 to 2026-11-15."""
    first, last = (_moment(since) if since else ""), (_moment(until, is_end=True) if until else "")
    if not (since and until):
        return f"since {first}" if first else f"until {last}" if last else "any time"
    if first == last:
        return first
    if len(first) > len(last):  # from a time of day to the end of a day
        last += " 24:00"
    return f"{since:%Y-%m-%d %H:%M} to {last[-5:]}" if first[:10] == last[:10] else f"{first} to {last}"


def _moment(moment: dt.datetime, *, is_end: bool = False) -> str:
    """Return a day, or a day and the time. A period that ends at midnight has its last day before that."""
    if moment.time() != dt.time():
        return f"{moment:%Y-%m-%d %H:%M}"
    return f"{moment - dt.timedelta(days=is_end):%Y-%m-%d}"


def _is_rest_general(text: TimeText) -> bool:
    """Return whether the words around the times say nothing about the content.

    Stopwords of other languages than English count only beside a time in one: "war" is a stopword in German.
    """
    covered = {at for mention in text.mentions for at in range(mention.first, mention.last)}
    rest = [token.text for at, token in enumerate(text.tokens) if at not in covered]
    english = date_words.english_words()
    is_english = all(word in english for at in covered if (word := text.tokens[at].text).isalpha())
    stopwords = stopwords_for(rest) if is_english else all_stopwords() | date_words.GENERAL_ELSEWHERE
    general = ENGLISH | date_words.GENERAL | date_words.ARTICLES | _BOUNDS | stopwords
    general |= {word for word in date_words.GENERAL_ELSEWHERE if is_unspaced(word)}
    runs = {word for word in rest if is_unspaced(word) and is_stopword_run(word)}
    return (general | runs).issuperset(rest)


# one or two times


def _one_time(text: TimeText) -> TimeQuery:
    mention = text.mentions[0]
    period, words = mention.reading.periods[0], text.expression(mention, mention)
    words_before = (token.text for token in reversed(text.tokens[: mention.first]))
    before = next((word for word in words_before if word not in date_words.ARTICLES), "")
    since: dt.datetime | None = period.start
    until: dt.datetime | None = period.end
    if before in _BOUNDS:
        words = f"{before} {words}"
    if before in date_words.SINCE:
        since, until = (mention.reading.exact or period).start, None
    elif before in date_words.UNTIL:
        since, until = None, period.start if before in ("before", "vor", "avant") else period.end
    elif before in date_words.AFTER:
        since, until = period.end, None
    return _time_query(since, until, words, text.mentions)


def _two_times(text: TimeText) -> TimeQuery | None:
    """Read "from Monday to Wednesday", "between … and …" and "yesterday and today"."""
    first, second = text.mentions
    gap = [token.text for token in text.tokens[first.last : second.first]]
    if not all(word in date_words.TO or word in date_words.ARTICLES for word in gap):
        return None
    start, end = first.reading.periods[0].start, second.reading.periods[0].end
    if start >= end and first.reading.kind == "weekday":  # "from Monday to Friday", said on a Wednesday
        start -= dt.timedelta(days=7)
    elif start >= end and len(first.reading.periods) > 1:  # "from November to February"
        start = first.reading.periods[1].start
    if start >= end:
        return None
    return _time_query(start, end, text.expression(first, second), text.mentions)


def _time_query(
    since: dt.datetime | None, until: dt.datetime | None, words: str, mentions: Sequence[TimeMention]
) -> TimeQuery:
    meaning = describe_period(since, until)
    text = words if words == meaning else f"{words} = {meaning}"
    is_calendar = any(mention.reading.kind in ("date", "recurring", "month", "year") for mention in mentions)
    return TimeQuery(since, until, text, is_calendar)


# periods that a query names


def find_periods(query: str, now: dt.datetime) -> list[Period]:
    """Return the periods that a query names."""
    if not may_name_time(query):
        return []
    from kept.search.date_reader import read_times

    return [period for mention in read_times(query, now).mentions for period in mention.reading.periods]


def boost_periods(ranked: Sequence[Scored], periods: Sequence[Period]) -> list[Scored]:
    """Add to the score of chunks from these periods or close to them, and rank again."""
    bounds = [(to_ms(period.start), to_ms(period.end), period.weight) for period in periods]
    boosted: list[Scored] = []
    for scored in ranked:
        timestamp_ms = scored.chunk.timestamp_ms
        closeness = max(weight * _closeness(timestamp_ms, start, end) for start, end, weight in bounds)
        why = "from that time" if closeness >= 1 else "near that time"
        boosted.append(scored.boosted("when", PERIOD_SHARE * closeness, why))
    return rank(boosted)


def _closeness(timestamp_ms: int, start_ms: int, end_ms: int) -> float:
    """Return 1 inside a period, falling to 0 at the end of the margin around it.

    Outside, whole days count: a chunk that has only a date is stamped with the beginning of its day.
    """
    if start_ms <= timestamp_ms < end_ms:
        return 1.0
    before, after = -((timestamp_ms - start_ms) // DAY_MS), (timestamp_ms - end_ms) // DAY_MS + 1
    margin = min(max(_MIN_MARGIN_DAYS, (end_ms - start_ms) / DAY_MS / 2), _MAX_MARGIN_DAYS)
    return max(0.0, 1.0 - max(before, after, 1) / margin)


# dates that limit a search


def parse_when(when: When, *, now: dt.datetime, end: bool = False) -> int:
    """Return a point in time as milliseconds since 1970.

    A day or a longer time means its beginning, or with ``end`` the beginning of what follows it.
    """
    try:
        if isinstance(when, dt.timedelta):
            return to_ms(now - when)
        if isinstance(when, dt.datetime):
            return to_ms(when)
        if isinstance(when, dt.date):
            period: Period | None = day_of(when)
        elif not isinstance(when, str):
            raise UsageError(f"{when!r:.80} is not a date.", hint=_PYTHON_HINT)
        elif moment := _parse_moment(when.strip().lower(), now):
            return to_ms(moment)
        else:
            period = find_period(when, now)
        if period is not None:
            return to_ms(period.end if end else period.start)
    except (ValueError, OverflowError):
        pass
    raise UsageError(f"'{when}' is not a date.", hint=_HINT)


def find_when(when: When | None, *, now: dt.datetime, end: bool = False) -> int | None:
    """Return a point in time as `parse_when` does, or None if none is given."""
    return None if when is None or when == "" else parse_when(when, now=now, end=end)


def parse_range(since: When | None, until: When | None, *, now: dt.datetime) -> tuple[int | None, int | None]:
    """Return the bounds of a search. Raise UsageError if ``since`` is after ``until``."""
    since_ms, until_ms = find_when(since, now=now), find_when(until, now=now, end=True)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise UsageError(f"'since' ({since}) is after 'until' ({until}).", hint="Swap them.")
    return since_ms, until_ms


def _parse_moment(text: str, now: dt.datetime) -> dt.datetime | None:
    """Read a moment: 2026-03-01T14:00, now, 7d. Return None for anything else."""
    if text == "now":
        return now
    if ago := re.fullmatch(_AGO, text):
        return now - dt.timedelta(hours=int(ago[1]) * _UNIT_HOURS[ago[2]])
    with suppress(ValueError):
        if len(text) > 10 and text[:4].isdecimal():
            return dt.datetime.fromisoformat(text.upper())
    return None


def find_period(text: str, now: dt.datetime) -> Period | None:
    """Return the period that a text is the name of, or None."""
    from kept.search.date_reader import read_times

    if re.fullmatch(r"\s*(?:19|20)\d\d\s*", text):
        text = f"in {text}"
    read = read_times(text, now)
    if len(read.mentions) != 1:
        return None
    mention = read.mentions[0]
    around = (*read.tokens[: mention.first], *read.tokens[mention.last :])
    if any(token.text not in _AROUND_DATE for token in around):
        return None
    return mention.reading.exact or mention.reading.periods[0]

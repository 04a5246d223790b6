"""Time expressions in many languages and notations, and the interval that each of them means."""

import datetime as dt

import pytest

from kept.base.records import Filter
from kept.errors import UsageError
from kept.search import date_words
from kept.search.date_reader import read_times
from kept.search.query_dates import may_name_time, parse_when, read_time_query
from tests.support.time_expressions import NOW, TIME_EXPRESSIONS


def interval(text: str, now: dt.datetime = NOW) -> tuple[dt.datetime, dt.datetime] | None:
    mentions = read_times(text, now).mentions
    return (mentions[0].reading.periods[0].start, mentions[0].reading.periods[0].end) if len(mentions) == 1 else None


def test_no_expression_is_passed_over_before_the_grammar_is_loaded():
    """A query without a word that tells of a time is not read at all."""
    assert [expression for expression, _, _ in TIME_EXPRESSIONS if not may_name_time(expression)] == []
    assert [" ".join(phrase) for phrase in date_words.RELATIVE if not may_name_time(" ".join(phrase))] == []
    assert not may_name_time("which port does the staging database use?")


@pytest.mark.parametrize(("expression", "start", "end"), TIME_EXPRESSIONS)
def test_an_expression_means_its_interval(expression, start, end):
    assert interval(expression) == (start, end)


@pytest.mark.parametrize(
    "text",
    [
        "may I ask", "it may 5 times fail", "march on", "the sun is up", "sat on the mat", "version 2.3.1", "10.0.0.1",
        "port 2023", "second hand", "one day", "was ist hier los", "guten Morgen", "Bob bakes bread on Mondays",
        "31 February 2020", "3/4/2024", "2023-13-45", "32/13/2024", "1/2 cup", "for 3 days", "over 3 days",
        "my son three years old", "what i may do", "morning coffee", "dun Laoghaire",
    ],
)  # fmt: skip
def test_other_words_and_numbers_are_not_times(text):
    assert interval(text) is None


@pytest.mark.parametrize("clock", [dt.time(0, 0), dt.time(0, 0, 1), dt.time(3, 41), dt.time(23, 59, 59)])
def test_yesterday_is_the_day_before_from_midnight_to_midnight(clock):
    now = dt.datetime.combine(dt.date(2026, 11, 16), clock)
    assert interval("yesterday", now) == (dt.datetime(2026, 11, 15), dt.datetime(2026, 11, 16))
    assert interval("last Thursday", now) == (dt.datetime(2026, 11, 12), dt.datetime(2026, 11, 13))
    assert interval("last night", now) == (dt.datetime(2026, 11, 15, 18), dt.datetime(2026, 11, 16, 6))


@pytest.mark.parametrize(
    ("zone", "hours"),
    [("UTC0", 24), ("Asia/Kolkata", 24), ("Pacific/Auckland", 24), ("America/New_York", 25), ("Europe/Berlin", 24)],
)
def test_a_day_is_local_and_has_an_hour_more_when_the_clocks_go_back(time_zone, zone, hours):
    time_zone(zone)
    now = dt.datetime(2026, 11, 2, 0, 30).astimezone()  # in New York the clocks went back on 1 November
    since, until = parse_when("yesterday", now=now), parse_when("yesterday", now=now, end=True)
    assert dt.datetime.fromtimestamp(since / 1000) == dt.datetime(2026, 11, 1)
    assert (until - since) / 3_600_000 == hours
    words = parse_when("the day before yesterday", now=now, end=True)
    assert words == since


@pytest.mark.parametrize(
    ("when", "since", "until"),
    [
        ("yesterday", "2026-11-17T00:00", "2026-11-18T00:00"),
        ("last Thursday", "2026-11-12T00:00", "2026-11-13T00:00"),
        ("last week", "2026-11-09T00:00", "2026-11-16T00:00"),
        ("2 hours ago", "2026-11-18T08:30", "2026-11-18T08:30"),
        ("12 November", "2026-11-12T00:00", "2026-11-13T00:00"),
        ("2024年3月3日", "2024-03-03T00:00", "2024-03-04T00:00"),
        ("2024-03", "2024-03-01T00:00", "2024-04-01T00:00"),
        ("2024", "2024-01-01T00:00", "2025-01-01T00:00"),
        ("this morning", "2026-11-18T00:00", "2026-11-18T12:00"),
        ("2026-03-01 14:00", "2026-03-01T14:00", "2026-03-01T14:00"),
        ("now", "2026-11-18T10:30", "2026-11-18T10:30"),
        ("2h", "2026-11-18T08:30", "2026-11-18T08:30"),
    ],
)
def test_since_and_until_read_the_same_times(when, since, until):
    now = NOW.astimezone()
    shown = [dt.datetime.fromtimestamp(parse_when(when, now=now, end=end) / 1000) for end in (False, True)]
    assert shown == [dt.datetime.fromisoformat(since), dt.datetime.fromisoformat(until)]


def test_a_timedelta_is_that_long_ago():
    now = NOW.astimezone()
    assert parse_when(dt.timedelta(hours=2), now=now) == parse_when("2h", now=now)


@pytest.mark.parametrize("when", ["soon", "backups yesterday", "31 February 2020", "yesterday 25:00", "99999999y", ""])
def test_what_is_not_a_date_is_refused_with_examples(when):
    with pytest.raises(UsageError) as refused:
        parse_when(when, now=NOW.astimezone())
    assert "is not a date" in refused.value.message
    assert "last Thursday" in refused.value.hint


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("yesterday", "yesterday = 2026-11-17"),
        ("what did I do yesterday", "yesterday = 2026-11-17"),
        ("notes from Wednesday", "Wednesday = 2026-11-11"),
        ("Thursday's notes", "Thursday's = 2026-11-12"),
        ("show me everything from last week", "last week = 2026-11-09 to 2026-11-15"),
        ("2026-11-12", "2026-11-12"),
        ("what have I written since Monday", "since Monday = since 2026-11-16"),
        ("before March", "before March = until 2026-02-28"),
        ("from Monday to Wednesday last week", "Monday to Wednesday last week = 2026-11-09 to 2026-11-11"),
        ("from November to February", "November to February = 2025-11-01 to 2026-02-28"),
        ("between 3 March and 5 March", "3 March and 5 March = 2026-03-03 to 2026-03-05"),
        ("yesterday and today", "yesterday and today = 2026-11-17 to 2026-11-18"),
        ("this morning", "this morning = 2026-11-18 00:00 to 12:00"),
        ("last night", "last night = 2026-11-17 18:00 to 2026-11-18 06:00"),
        ("was habe ich gestern gemacht?", "gestern = 2026-11-17"),
        ("qu'est-ce que j'ai fait hier ?", "hier = 2026-11-17"),
        ("¿qué hice ayer?", "ayer = 2026-11-17"),
        ("что я делал вчера", "вчера = 2026-11-17"),
        ("我昨天做了什么", "昨天 = 2026-11-17"),
        ("who fed the parrot last week", None),
        ("what did we decide about backups yesterday", None),
        ("war last year", None),
        ("meetings yesterday", None),
        ('"yesterday"', None),
        ("what did I do", None),
        ("", None),
    ],
)
def test_a_query_that_is_only_a_time_is_recognised_and_says_how_it_was_read(query, text):
    reading = read_time_query(query, NOW, Filter())
    assert (reading.text if reading else None) == text

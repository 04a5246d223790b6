"""Rules of when something happens: in every zone, also when the clock changes, and as people write them."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kept.errors import ScheduleInvalid
from kept.sessions.schedules.time_rule import CronRule, parse_rule

BERLIN = ZoneInfo("Europe/Berlin")
UTC = ZoneInfo("UTC")


def local_times(rule, begin, count):
    times, at = [], begin.astimezone(dt.UTC)
    for _ in range(count):
        at = rule.find_next(at)
        times.append(f"{at.astimezone(rule.zone):%Y-%m-%d %H:%M}")
    return times


def field_of(low, high):
    numbers = st.integers(low, high)
    spans = st.tuples(numbers, numbers).map(lambda pair: "-".join(map(str, sorted(pair))))
    return st.one_of(st.sampled_from(["*", "*/2", "*/7"]), numbers.map(str), spans)


field_values = [field_of(low, high) for low, high in ((0, 59), (0, 23), (1, 28), (1, 12), (0, 6))]


@settings(deadline=None, max_examples=50)
@given(st.tuples(*field_values), st.datetimes(dt.datetime(2024, 1, 1), dt.datetime(2030, 1, 1)))
def test_the_last_time_until_a_time_is_that_time(fields, begin):
    rule = CronRule.parse(" ".join(fields), BERLIN)
    begin = begin.replace(tzinfo=dt.UTC)
    following = rule.find_next(begin)
    assert rule.find_last(following) == following
    before = rule.find_last(begin)
    assert before is None or (before <= begin and rule.find_next(before) == following)


def test_a_time_that_the_clock_skips_is_moved_and_one_that_comes_twice_counts_once():
    rule = CronRule.parse("30 2 * * *", BERLIN)
    spring = local_times(rule, dt.datetime(2026, 3, 28, 12, tzinfo=BERLIN), 2)
    assert spring == ["2026-03-29 03:00", "2026-03-30 02:30"]
    again = dt.datetime(2026, 10, 25, 2, 10, tzinfo=BERLIN, fold=1).astimezone(dt.UTC)
    assert f"{rule.find_next(again):%d %H:%M}" == "26 01:30"
    assert f"{rule.find_last(again):%d %H:%M}" == "25 00:30"
    autumn = local_times(rule, dt.datetime(2026, 10, 24, 12, tzinfo=BERLIN), 2)
    assert autumn == ["2026-10-25 02:30", "2026-10-26 02:30"]


# plain words

BANGKOK = ZoneInfo("Asia/Bangkok")
NOW = dt.datetime(2026, 3, 14, 15, 9, 26, tzinfo=BANGKOK)
"""A Saturday."""


def upcoming(text, count=2):
    rule, times, at = parse_rule(text, BANGKOK, now=NOW), [], NOW.astimezone(dt.UTC)
    for _ in range(count):
        at = rule.find_next(at)
        times.append(f"{at.astimezone(BANGKOK):%a %d %H:%M}")
    return times


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("every weekday 8:00", ["Mon 16 08:00", "Tue 17 08:00"]),
        ("every day at 18:30", ["Sat 14 18:30", "Sun 15 18:30"]),
        ("daily at 8:00 and 20:00", ["Sat 14 20:00", "Sun 15 08:00"]),
        ("mondays and thursdays at 7:15 pm", ["Mon 16 19:15", "Thu 19 19:15"]),
        ("every Tue, Wed 12am", ["Tue 17 00:00", "Wed 18 00:00"]),
        ("every weekend at noon", ["Sun 15 12:00", "Sat 21 12:00"]),
        ("every month on the 1st at 9:00", ["Wed 01 09:00", "Fri 01 09:00"]),
        ("on the 1st and 15th at 9:00", ["Sun 15 09:00", "Wed 01 09:00"]),
        ("every hour", ["Sat 14 16:00", "Sat 14 17:00"]),
        ("every 30 minutes", ["Sat 14 15:30", "Sat 14 16:00"]),
        ("every 2 hours", ["Sat 14 16:00", "Sat 14 18:00"]),
        ("0 8 * * 1-5", ["Mon 16 08:00", "Tue 17 08:00"]),
        ("0 8 * APR MON-FRI", ["Wed 01 08:00", "Thu 02 08:00"]),
    ],
)
def test_plain_words_and_cron_are_read(text, times):
    assert upcoming(text) == times


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("tomorrow 9:30", "Sun 15 09:30"),
        ("today at 6pm", "Sat 14 18:00"),
        ("in 2 hours", "Sat 14 17:09"),
        ("in a day", "Sun 15 15:09"),
        ("2026-12-24 18:00", "Thu 24 18:00"),
        ("2026-12-24T18:00", "Thu 24 18:00"),
    ],
)
def test_a_single_time_happens_once(text, time):
    assert upcoming(text, 1) == [time]
    rule = parse_rule(text, BANGKOK, now=NOW)
    assert rule.find_next(rule.find_next(NOW)) is None


@pytest.mark.parametrize(
    "text",
    ["", "soon", "every blue moon", "every weekday", "every weekday 25:00", "8:00", "every day 13pm", "today 9:00",
     "2026-02-30 9:00", "daily 8:00 and 9:30", "every 0 minutes", "every 45 minutes", "60 8 * * *",
     "every monday the 3rd 8:00", "tomorrow", "every weekday 8:00 except holidays", "* * * * * *"],
)  # fmt: skip
def test_what_is_not_a_time_is_refused(text):
    with pytest.raises(ScheduleInvalid):
        parse_rule(text, BANGKOK, now=NOW)

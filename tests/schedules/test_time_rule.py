"""Rules of when something happens: as cron reads them, in every zone, also when the clock changes."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from kept.errors import ScheduleInvalid
from kept.schedules.time_rule import CronRule, make_interval

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


@settings(deadline=None)
@given(st.tuples(*field_values), st.datetimes(dt.datetime(2024, 1, 1), dt.datetime(2030, 1, 1)))
def test_a_rule_is_read_as_cron_reads_it(fields, begin):
    begin = begin.replace(second=0, microsecond=0, tzinfo=UTC)
    rule = CronRule.parse(" ".join(fields), UTC)
    expected = CronSim(" ".join(fields), begin)
    at = begin.astimezone(dt.UTC)
    for _ in range(4):
        at = rule.find_next(at)
        assert at == next(expected)


@settings(deadline=None, max_examples=50)
@given(st.tuples(*field_values), st.datetimes(dt.datetime(2024, 1, 1), dt.datetime(2030, 1, 1)))
def test_the_last_time_until_a_time_is_that_time(fields, begin):
    rule = CronRule.parse(" ".join(fields), BERLIN)
    begin = begin.replace(tzinfo=dt.UTC)
    following = rule.find_next(begin)
    assert rule.find_last(following) == following
    before = rule.find_last(begin)
    assert before is None or (before <= begin and rule.find_next(before) == following)


def test_local_time_stays_when_the_clock_changes():
    rule = CronRule.parse("0 8 * * *", BERLIN)
    begin = dt.datetime(2026, 3, 28, 0, 0, tzinfo=BERLIN)
    assert local_times(rule, begin, 3) == ["2026-03-28 08:00", "2026-03-29 08:00", "2026-03-30 08:00"]
    times = [rule.find_next(begin.astimezone(dt.UTC))]
    times.append(rule.find_next(times[0]))
    assert times[1] - times[0] == dt.timedelta(hours=23)


def test_a_time_that_the_clock_skips_is_moved_and_one_that_comes_twice_counts_once():
    rule = CronRule.parse("30 2 * * *", BERLIN)
    spring = local_times(rule, dt.datetime(2026, 3, 28, 12, tzinfo=BERLIN), 2)
    assert spring == ["2026-03-29 03:30", "2026-03-30 02:30"]
    autumn = local_times(rule, dt.datetime(2026, 10, 24, 12, tzinfo=BERLIN), 2)
    assert autumn == ["2026-10-25 02:30", "2026-10-26 02:30"]


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_a_rule_without_an_hour_counts_real_time(day):
    rule = CronRule.parse("*/30 * * * *", BERLIN)
    at = dt.datetime.fromisoformat(f"{day}T00:00:00+00:00")
    for _ in range(10):
        following = rule.find_next(at)
        assert following - at == dt.timedelta(minutes=30)
        at = following


def test_leap_days_are_found_and_dates_that_do_not_exist_are_refused():
    rule = CronRule.parse("0 0 29 2 *", UTC)
    assert local_times(rule, dt.datetime(2026, 1, 1, tzinfo=UTC), 1) == ["2028-02-29 00:00"]
    with pytest.raises(ScheduleInvalid, match="does not exist"):
        CronRule.parse("0 0 31 2 *", UTC)


@pytest.mark.parametrize("text", ["60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "5-1 * * * *",
                                  "*/0 * * * *", "a * * * *", "* * *", "1,,2 * * * *", "@often"])  # fmt: skip
def test_a_rule_that_makes_no_sense_is_refused(text):
    with pytest.raises(ScheduleInvalid):
        CronRule.parse(text, UTC)


def test_names_and_shortcuts_are_read():
    assert CronRule.parse("0 8 * JAN MON-FRI", UTC) == CronRule.parse("0 8 * 1 1-5", UTC)
    assert CronRule.parse("0 0 * * 7", UTC).weekdays == CronRule.parse("@weekly", UTC).weekdays


def test_an_interval_counts_from_its_beginning():
    begin = dt.datetime(2026, 3, 14, 15, 9, tzinfo=dt.UTC)
    rule = make_interval(begin, 2700)
    assert rule.find_last(begin) is None
    assert rule.find_next(begin) == begin + dt.timedelta(minutes=45)
    assert rule.find_last(begin + dt.timedelta(minutes=100)) == begin + dt.timedelta(minutes=90)
    with pytest.raises(ScheduleInvalid):
        make_interval(begin, 59)

"""Times as people write them."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from kept.errors import ScheduleInvalid
from kept.schedules.plain_times import parse_rule

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
        ("Every weekday at 8am", ["Mon 16 08:00", "Tue 17 08:00"]),
        ("weekdays 8:00", ["Mon 16 08:00", "Tue 17 08:00"]),
        ("every day at 18:30", ["Sat 14 18:30", "Sun 15 18:30"]),
        ("daily at 8:00 and 20:00", ["Sat 14 20:00", "Sun 15 08:00"]),
        ("every monday 9:30", ["Mon 16 09:30", "Mon 23 09:30"]),
        ("mondays and thursdays at 7:15 pm", ["Mon 16 19:15", "Thu 19 19:15"]),
        ("every Tue, Wed 12am", ["Tue 17 00:00", "Wed 18 00:00"]),
        ("every weekend at noon", ["Sun 15 12:00", "Sat 21 12:00"]),
        ("every month on the 1st at 9:00", ["Wed 01 09:00", "Fri 01 09:00"]),
        ("on the 1st and 15th at 9:00", ["Sun 15 09:00", "Wed 01 09:00"]),
        ("every hour", ["Sat 14 16:00", "Sat 14 17:00"]),
        ("hourly", ["Sat 14 16:00", "Sat 14 17:00"]),
        ("every 30 minutes", ["Sat 14 15:30", "Sat 14 16:00"]),
        ("every 2 hours", ["Sat 14 16:00", "Sat 14 18:00"]),
        ("every 45 minutes", ["Sat 14 15:54", "Sat 14 16:39"]),
        ("every 3 days", ["Tue 17 15:09", "Fri 20 15:09"]),
        ("0 8 * * 1-5", ["Mon 16 08:00", "Tue 17 08:00"]),
        ("@daily", ["Sun 15 00:00", "Mon 16 00:00"]),
        ("0 8 1 * *", ["Wed 01 08:00", "Fri 01 08:00"]),
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
     "2026-02-30 9:00", "daily 8:00 and 9:30", "every 0 minutes", "every monday the 3rd 8:00", "60 8 * * *",
     "tomorrow", "every weekday 8:00 except holidays", "* * * * * *"],
)  # fmt: skip
def test_what_is_not_a_time_is_refused(text):
    with pytest.raises(ScheduleInvalid):
        parse_rule(text, BANGKOK, now=NOW)

"""Dates in the format of moment.js, as file names."""

import datetime as dt
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.notes.daily import (
    DEFAULT_DAILY_NOTES,
    DailyNotes,
    FormatRefused,
    date_pattern,
    format_date,
    parse_format,
    read_date,
)

DAY = dt.date(2026, 11, 3)
FORMATS = {
    "YYYY-MM-DD": "2026-11-03",
    "DD.MM.YYYY": "03.11.2026",
    "YYYYMMDD": "20261103",
    "D-M-YY": "3-11-26",
    "YYYY/MM-MMMM/YYYY-MM-DD-dddd": "2026/11-November/2026-11-03-Tuesday",
    "[Day] Do MMMM YYYY": "Day 3rd November 2026",
    "ddd, MMM D, YYYY": "Tue, Nov 3, 2026",
    "GGGG-[W]WW/YYYY-MM-DD": "2026-W45/2026-11-03",
    "YYYY_MM_DD": "2026_11_03",
}


@pytest.mark.parametrize(("text", "name"), FORMATS.items())
def test_a_day_is_written_and_read_back(text, name):
    assert format_date(text, DAY) == name
    match = re.fullmatch(date_pattern(text), name)
    assert read_date(match) == DAY


@pytest.mark.parametrize("text", ["", "dddd", "YYYY-MM", "gggg-[W]ww", "YYYY-MM-DD HH.mm", "DD", "[YYYY-MM-DD]", "X"])
def test_a_format_that_names_no_day_or_has_other_parts_is_refused(text):
    with pytest.raises(FormatRefused):
        parse_format(text)


@given(day=st.dates(dt.date(2000, 1, 1), dt.date(2099, 12, 31)), text=st.sampled_from(sorted(FORMATS)))
def test_every_day_has_its_own_name(day, text):
    assert DailyNotes("Journal", text).find_day(DailyNotes("Journal", text).name(day)) == day


@pytest.mark.parametrize(
    "name", ["31.02.2026.md", "03.13.2026.md", "3.11.2026.md", "03.11.2026 b.md", "03.11.2026.txt"]
)
def test_a_name_that_is_no_day_is_not_a_daily_note(name):
    assert DailyNotes("Journal", "DD.MM.YYYY").find_day(f"Journal/{name}") is None
    assert DailyNotes("Journal", "DD.MM.YYYY").find_day("Elsewhere/03.11.2026.md") is None


@pytest.mark.parametrize(
    ("name", "is_daily"),
    [(name, True) for name in ("", "-2", "-10", "-999")]
    + [(name, False) for name in ("-0", "-1", "-02", "-1000", "-2-3", "-standup", "-2a")],
)
def test_a_note_that_is_only_named_like_a_part_is_none(name, is_daily):
    assert DEFAULT_DAILY_NOTES.find_day(f"memory/2026-03-14{name}.md") == (dt.date(2026, 3, 14) if is_daily else None)

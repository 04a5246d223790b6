"""Periods in a query: what they mean, and how little they may change."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.search.query_dates import find_periods
from kept.testing import FrozenClock
from tests.support.workspaces import open_memory, paths, write_note

NOW = dt.datetime(2026, 3, 14, 12)  # a Saturday


def test_a_month_without_a_year_also_means_those_before_at_half():
    weights = {period.start.date().isoformat(): period.weight for period in find_periods("in May", NOW)}
    assert weights["2025-05-01"] == 1.0
    assert weights["2024-05-01"] == 0.5


@given(query=st.text(max_size=80), now=st.datetimes())
def test_any_text_on_any_day_can_be_read(query, now):
    find_periods(query, now)


_pieces = st.sampled_from(
    "may 3 31 2023 ago last week of de in a couple 0001-01-01 9999-12-31 день vor il y march".split()
)


@given(words=st.lists(_pieces, max_size=8), now=st.datetimes(dt.datetime(1971, 1, 1), dt.datetime(2200, 1, 1)))
def test_any_order_of_date_words_can_be_read(words, now):
    for period in find_periods(" ".join(words), now):
        assert period.start < period.end


@pytest.fixture
def diary(tmp_path):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/2026-03-04.md", "The parrot was fed by Ada.\n")
    write_note(workspace, "memory/2026-01-20.md", "The parrot was fed by Bob.\n")
    write_note(workspace, "memory/2025-05-10.md", "The parrot was fed by Cyd.\n")
    with open_memory(tmp_path, clock=FrozenClock(dt.datetime(2026, 3, 14, 12).astimezone())) as memory:
        yield memory


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("who fed the parrot last week", "memory/2026-03-04.md"),
        ("who fed the parrot two months ago", "memory/2026-01-20.md"),
        ("who fed the parrot in May", "memory/2025-05-10.md"),
        ("wer hat den parrot letzte Woche gefüttert", "memory/2026-03-04.md"),
    ],
)
def test_a_chunk_from_the_period_comes_first_and_none_is_left_out(diary, query, first):
    result = diary.search(query, min_score=0.0)
    assert paths(result)[0] == first
    assert len(result) == 3
    part = next(part for part in result.hits[0].parts if part.name == "when")
    assert 0 < part.value < result.hits[0].score / 2
    assert sum(part.value for part in result.hits[0].parts) == pytest.approx(result.hits[0].score)


def test_a_period_alone_is_not_an_answer(diary):
    assert diary.search("the zebra crossing of last week").answered == "no"

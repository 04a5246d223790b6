"""The timeline and its calendar."""

import datetime as dt

import pytest

from kept import Message
from kept.testing import FrozenClock
from tests.support.web_site import texts, visiting
from tests.support.workspaces import write_note

TODAY = dt.datetime(2026, 3, 14, 15, 9, 26).astimezone()


@pytest.fixture
def dated(tmp_path, workspace):
    for day in ("2026-03-14", "2026-03-12", "2026-01-05"):
        write_note(workspace, f"memory/{day}.md", f"# {day}\n\n## 09:30\n\nText of {day}.\n")
    with visiting(tmp_path, clock=FrozenClock(TODAY)) as pages:
        yield pages


def test_days_are_listed_newest_first_with_notes_and_conversations(dated):
    session = dated.site.sessions.get_or_create("telegram", "5054")
    when = TODAY - dt.timedelta(days=2)
    dated.site.sessions.append(session.id, Message.of("user", "Is the oven repaired?"), timestamp=when)
    page = dated.page("/timeline")
    assert texts(page, ".day h2") == ["Today 1", "Thursday, 12 March 2", "Monday, 5 January 1"]
    assert set(texts(page.select(".day")[1], ".title")) == {"2026-03-12", "Is the oven repaired?"}
    assert texts(page.select(".day")[0], "time") == ["09:30"]


def test_the_calendar_links_to_days_with_entries(dated):
    page = dated.page("/timeline")
    links = [link["href"] for link in page.select(".calendar a")]
    assert links == [f"/timeline?day={day}" for day in ("2026-01-05", "2026-03-12", "2026-03-14")]
    assert "2026-03-12: 1 passage" in page.select(".calendar a")[1]["aria-label"]


@pytest.mark.parametrize(
    ("asked", "first"), [("2026-03-12", "Thursday, 12 March 1"), ("2026-03-11", "Monday, 5 January 1")]
)
def test_a_day_can_be_jumped_to(dated, asked, first):
    page = dated.page(f"/timeline?day={asked}")
    assert texts(page, ".day h2")[0] == first
    assert ("Nothing is from" in page.text) == (asked != "2026-03-12")


@pytest.mark.parametrize("asked", ["nonsense", "2026-99-99", "9999-12-31", "0001-01-01", "%00"])
def test_a_day_that_makes_no_sense_breaks_nothing(dated, asked):
    assert dated.page(f"/timeline?day={asked}").select(".calendar")

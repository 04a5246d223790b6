"""What a line says about when it holds, in the forms that people write."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.notes.validity import Validity, may_be_marked, read_line, read_statements, strike_line

DAY = dt.date(2026, 11, 3)


@pytest.mark.parametrize(
    ("line", "text", "validity"),
    [
        ("- Port 6000 (since 2026-11-03, was 5433)", "- Port 6000", Validity(since=DAY, was="5433")),
        ("- ~~Port 5433~~ (until 2026-11-03)", "- Port 5433", Validity(until=DAY, is_struck=True)),
        ("- ~~Port 5433 (until 2026-11-03)~~", "- Port 5433", Validity(until=DAY, is_struck=True)),
        ("- ~~Port 5433~~", "- Port 5433", Validity(is_struck=True)),
        ("* Port 1 (from 3 November 2026)", "* Port 1", Validity(since=DAY)),
        ("Port 1 (From Nov 3, 2026).", "Port 1.", Validity(since=DAY)),
        ("Port 1 (seit 3.11.2026)", "Port 1", Validity(since=DAY)),
        ("Port 1 (since 2026/11/03)", "Port 1", Validity(since=DAY)),
        ("Port 1 *(since [[2026-11-03]])* #infra ^p1", "Port 1 #infra ^p1", Validity(since=DAY)),
        ("Port 1 (since 2026)", "Port 1", Validity(since=dt.date(2026, 1, 1))),
        ("Port 1 (until June 2026)", "Port 1", Validity(until=dt.date(2026, 6, 1))),
        (
            "Port 1 (valid from 2026-01-01 to 2026-11-02)",
            "Port 1",
            Validity(since=dt.date(2026, 1, 1), until=DAY),
        ),
        ("Port 1 (from 2026-01 – 2026-10)", "Port 1", Validity(dt.date(2026, 1, 1), dt.date(2026, 11, 1))),
        ("Port 1 (was 2, once 3)", "Port 1", Validity(was="2, once 3")),
        ("Port 1 (since 2026-11-03) (from sessions/a.jsonl#L3)", "Port 1 (from sessions/a.jsonl#L3)", Validity(DAY)),
        ("## ~~Old office~~ (until 2026-11-03)", "## Old office", Validity(until=DAY, is_struck=True)),
    ],
)  # fmt: skip
def test_marks_are_read_as_people_write_them(line, text, validity):
    marked = read_line(line)
    assert marked.text == text
    assert marked.validity == validity


@pytest.mark.parametrize(
    "line",
    [
        "- Port 1 (since 2026-02-30)", "- Port 1 (until 0000-00-00)", "- Port 1 (since 2026-13-01)",
        "- Port 1 (since yesterday)", "- Port 1 (since 03/11/2026)", "- Port 1 (since 2026-05-01, until 2026-01-01)",
        "- Bob (until 2024) was the boss", "- Ada moved (from Kiel)", "- see (from sessions/a.jsonl#L3)",
        "- Port ~~5433~~ 6000", "| db | ~~5433~~ |", "- " + "(" * 500, "- Port 1 (" + "since 2026, " * 18 + "x)",
        "- Port 1 (since 2026-11-03" + " " * 400 + ")",
    ],
)  # fmt: skip
def test_what_is_not_a_date_is_ordinary_text(line):
    assert read_line(line).validity is None
    assert read_line(line).text == line


def test_the_end_of_the_calendar_is_no_error():
    assert read_line("- a (valid from 9999-12-31 to 9999-12-31)").validity == Validity(since=dt.date.max)


@given(st.text(alphabet="~(), -|#^*_.0123456789sinceutlwaform[]\n<>del", max_size=120))
def test_no_text_breaks_the_reader_and_the_quick_test_misses_nothing(text):
    for line in text.split("\n"):
        marked = read_line(line)
        assert marked.validity is None or may_be_marked(line)
    read_statements(text)


@pytest.mark.parametrize(
    ("line", "struck"),
    [
        ("- Port 5433.", "- ~~Port 5433.~~ (until 2026-11-03)"),
        ("- [ ] Port 5433 #infra ^p1", "- [ ] ~~Port 5433~~ (until 2026-11-03) #infra ^p1"),
        ("- Port (TCP)", "- ~~Port (TCP)~~ (until 2026-11-03)"),
        (
            "* Port 2 (since 2026-01-01, was 1)",
            "* ~~Port 2~~ (since 2026-01-01, until 2026-11-03, was 1)",
        ),
        ("- Port 2 (since 2027-01-01)", "- ~~Port 2~~ (since 2027-01-01, until 2027-01-01)"),
    ],
)  # fmt: skip
def test_a_line_is_struck_through_with_its_date(line, struck):
    assert strike_line(line, DAY) == struck
    again = read_line(struck)
    assert again.validity.is_struck
    assert again.validity.state(dt.date(2027, 6, 1)) == "ended"


def test_a_fact_holds_from_its_first_day_up_to_the_day_of_its_end():
    validity = Validity(since=dt.date(2026, 1, 1), until=DAY)
    assert validity.state(dt.date(2025, 12, 31)) == "later"
    assert validity.state(dt.date(2026, 1, 1)) == "holds"
    assert validity.state(DAY - dt.timedelta(days=1)) == "holds"
    assert validity.state(DAY) == "ended"
    assert validity.state(dt.date(2025, 12, 1), dt.date(2026, 1, 31)) == "holds"


def test_what_is_below_a_heading_or_an_item_ends_with_it():
    statements = read_statements(
        "# Offices\n\n## ~~Kiel~~ (until 2026-11-03)\n\n- Two floors\n\n```\n- ~~code~~\n```\n\n## Bonn\n\n"
        "- ~~Ground floor~~ (until 2026-01-01)\n  - Room 3\n- First floor\n  of the annex (since 2026-11-03)\n"
    )
    ends = {statement.text.strip(): statement.validity and statement.validity.until for statement in statements}
    assert ends == {
        "# Offices": None,
        "## Kiel": DAY,
        "- Two floors": DAY,
        "## Bonn": None,
        "- Ground floor": dt.date(2026, 1, 1),
        "- Room 3": dt.date(2026, 1, 1),
        "- First floor\n  of the annex": None,
    }
    assert statements[-1].validity == Validity(since=DAY)
    assert (statements[-1].first_line, statements[-1].last_line) == (15, 16)

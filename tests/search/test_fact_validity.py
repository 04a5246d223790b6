"""Facts that change: what holds comes first, as of any day, with vectors and by words only."""

import datetime as dt

import pytest

from kept.testing import FrozenClock
from tests.support.files import write_file

START = dt.datetime(2025, 1, 10, 12).astimezone()
BY_WORDS = {"memory_search.provider": "none"}
BY_MEANING = {"memory_search.provider": "local"}
NOISE = {
    "memory/ops.md": "# Ops\n\nDeploys go to staging on Fridays, after the tests are green.\n",
    "memory/prod.md": "# Production\n\n- Production is on port 5432.\n- Production is in Frankfurt.\n",
    "memory/people.md": "# People\n\n- Ada lives in Kiel and sails to the port of Hamburg.\n- Bob staged a play.\n",
}


def change_often(memory, clock, *, to, replaces=True, times=50):
    """Change one fact many times, every eleven days. Return each day with the value since then."""
    changes, citation = [], None
    for number in range(times):
        port = 5000 + 7 * number
        place = {"to": to} if citation is None or to == "daily" else {}
        written = memory.add(f"Staging is on port {port}", replaces=citation if replaces else None, **place)
        citation = f"{written.path}#L{written.end_line}"
        changes.append((clock.now().date(), port))
        clock.move(days=11)
    clock.move(days=-11)
    return changes


@pytest.mark.parametrize("settings", [BY_WORDS, BY_MEANING], ids=["words", "vectors"])
@pytest.mark.parametrize(
    ("to", "replaces"), [("memory", True), ("memory/infra.md", True), ("daily", True), ("daily", False)]
)
def test_fifty_changes_of_a_fact_are_answered_for_every_date(memory, workspace, settings, to, replaces):
    for path, text in NOISE.items():
        write_file(workspace / path, text)
    clock = FrozenClock(START)
    notes = memory(clock=clock, settings=settings, embedder=None)
    changes = change_often(notes, clock, to=to, replaces=replaces)
    present = notes.search("which port is staging on?")[0]
    assert str(changes[-1][1]) in present.snippet
    assert present.validity is None or present.validity.holds
    right = 0
    for day, port in changes:
        first = notes.search("which port is staging on?", as_of=day + dt.timedelta(days=5))[0]
        right += f"port {port}" in first.snippet and first.snippet.count("Staging is on port") == 1
    print(f"as of {len(changes)} dates, {to}, {'replaced' if replaces else 'logged'}: {right} right")
    assert right == len(changes)


@pytest.fixture
def changed(memory, workspace):
    write_file(
        workspace / "MEMORY.md",
        "# Memory\n\n- Staging is on port 6000 (since 2026-11-03, was 5433)\n"
        "- ~~Staging is on port 5433~~ (since 2026-09-20, until 2026-11-03, was 5000)\n"
        "- ~~Staging is on port 5000~~ (until 2026-09-20)\n",
    )
    write_file(workspace / "memory/2026-10-12.md", "# 2026-10-12\n\nWe said that the launch slips to January.\n")
    write_file(workspace / "memory/2026-11-10.md", "# 2026-11-10\n\nWe said that the launch slips to February.\n")
    return memory(clock=FrozenClock(dt.datetime(2026, 11, 16, 12).astimezone()))


def test_an_answer_tells_what_held_before_and_what_came_after(changed):
    now, before, first = changed.search("staging port").passages[:3]
    assert (now.validity.holds, now.validity.since, now.validity.was) == (True, "2026-11-03", "5433")
    assert now.validity.before == ("MEMORY.md#L4", "MEMORY.md#L5")
    assert (before.validity.holds, before.validity.until) == (False, "2026-11-03")
    assert before.validity.replaced_by == "MEMORY.md#L3"
    assert first.validity.replaced_by == "MEMORY.md#L4"


def test_a_month_in_a_question_ranks_facts_as_they_held_then(changed):
    for query in ("which port was staging on in October?", "staging port last month"):
        assert "5433" in changed.search(query)[0].snippet.split("(")[0], query


def test_a_question_about_what_was_said_in_a_month_still_finds_it(changed):
    assert "January" in changed.search("what did we say in October about the launch?")[0].snippet


def test_an_as_of_search_leaves_out_what_was_written_later(changed):
    hits = changed.search("when is the launch?", as_of="2026-10-31").hits
    assert [hit.path for hit in hits if "launch" in hit.snippet] == ["memory/2026-10-12.md"]
    assert all(
        "6000" not in hit.snippet.split("(")[0] for hit in changed.search("staging port", as_of="2026-10-01").passages
    )


def test_a_line_that_was_changed_in_place_tells_what_was(memory, workspace):
    write_file(workspace / "MEMORY.md", "# Memory\n\n- Staging is on port 6000 (since 2026-11-03, was 5433)\n")
    hit = memory().search("staging port", as_of="2026-10-01")[0]
    assert (hit.validity.holds, hit.validity.was) == (False, "5433")


def test_a_message_counts_by_its_own_time(memory, workspace, home):
    from kept.sessions.entries import Message
    from kept.sessions.store import SessionStore

    clock = FrozenClock(dt.datetime(2026, 10, 1, 12).astimezone())
    with SessionStore.open(home=home, clock=clock) as sessions:
        record = sessions.get_or_create("telegram", "5054")
        sessions.append(record.id, Message.of("user", "The otter sleeps in the shed."))
        clock.move(days=30)
        sessions.append(record.id, Message.of("user", "The otter sleeps in the barn."))
    found = memory(clock=clock).search("where does the otter sleep", as_of="2026-10-15")
    assert "shed" in found[0].snippet
    assert all("barn" not in hit.snippet for hit in found)


def test_only_the_lines_that_held_are_shown_of_a_longer_passage(memory, workspace):
    lines = [f"- ~~The gate code is {1000 + at}~~ (until 2025-{at + 1:02}-01)" for at in range(11)]
    write_file(workspace / "memory/gate.md", "\n".join(["# Gate", "", "- The gate code is 9999", *lines * 2, ""]))
    hit = memory().search("gate code")[0]
    assert "9999" in hit.snippet
    assert "1003" not in hit.snippet


@pytest.mark.parametrize("as_of", ["9998-12-31", "0001-01-01", "1969-01-01"])
def test_days_at_the_ends_of_the_calendar_are_answered(changed, as_of):
    changed.search("staging port", as_of=as_of)


def test_a_day_that_is_none_is_an_error(changed):
    from kept.errors import UsageError

    with pytest.raises(UsageError, match="is not a date"):
        changed.search("staging port", as_of="2026-02-30")

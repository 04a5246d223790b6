"""Looking without a question: what is from a time, which notes there are, and a note by its day or title."""

import datetime as dt
import os
from pathlib import Path

import pytest

from kept import Message, SessionStore
from kept.errors import EmptyQuery, NoteNotFound, PathRefused, UsageError
from kept.testing import FrozenClock
from tests.support.workspaces import open_memory, paths, write_note

MONDAY = dt.datetime(2026, 11, 16, 3, 41)


def write_diary(workspace: Path) -> None:
    """Write notes of the week before the 16th, a Monday."""
    days = {
        "2026-11-10": "Booked the ferry for 24 November at 12.",
        "2026-11-11": "Bread again.",
        "2026-11-12": "Production incident.",
        "2026-11-13": "Otter seen at the weir.",
        "2026-11-15": "Fixed the redirect. Otter again.",
        "2026-11-16": "Otter and heron.",
    }
    for day, text in days.items():
        write_note(workspace, f"memory/{day}.md", f"# {day}\n\n## 09:00\n\n{text}\n")
    change_note(workspace, "memory/ideas.md", "# Ideas\n\nA boat.\n", "2026-11-12T10:00")
    change_note(workspace, "memory/empty.md", "", "2026-09-01T10:00")


def change_note(workspace: Path, path: str, text: str, when: str) -> None:
    moment = dt.datetime.fromisoformat(when).timestamp()
    os.utime(write_note(workspace, path, text), (moment, moment))


@pytest.fixture
def diary(tmp_path):
    write_diary(tmp_path / "workspace")
    with open_memory(tmp_path, clock=FrozenClock(MONDAY.astimezone())) as memory:
        yield memory


def say(tmp_path: Path, when: str, *texts: str) -> None:
    clock = FrozenClock(dt.datetime.fromisoformat(when).astimezone())
    with SessionStore.open(home=tmp_path / "home", clock=clock) as sessions:
        session = sessions.get_or_create("telegram", "5054")
        sessions.append_all(session.id, [Message.of("user", text) for text in texts])


@pytest.mark.parametrize(
    ("query", "notes", "text"),
    [
        ("yesterday", ["memory/2026-11-15.md"], "yesterday = 2026-11-15"),
        ("notes from Wednesday", ["memory/2026-11-11.md"], "Wednesday = 2026-11-11"),
        ("what happened last Thursday?", ["memory/2026-11-12.md", "memory/ideas.md"], "last Thursday = 2026-11-12"),
        ("12 November", ["memory/2026-11-12.md", "memory/ideas.md"], "12 November = 2026-11-12"),
        (
            "last week",
            (
                "memory/2026-11-10.md memory/2026-11-11.md memory/2026-11-12.md memory/ideas.md "
                "memory/2026-11-13.md memory/2026-11-15.md"
            ).split(),
            "last week = 2026-11-09 to 2026-11-15",
        ),
        ("Saturday", [], "Saturday = 2026-11-14"),
    ],
)
def test_a_query_that_is_only_a_time_lists_it_in_order(diary, query, notes, text):
    result = diary.search(query)
    assert paths(result) == notes
    assert result.period.text == text
    assert result.period.total == len(notes)
    assert all(hit.listed and hit.score == sum(part.value for part in hit.parts) == 1.0 for hit in result)


def test_a_list_has_notes_and_conversations_and_every_entry_of_a_log(tmp_path):
    log = "# 2026-11-15\n\n## 09:00\n\nFixed the redirect.\n\n## 15:00\n\nCalled the dentist.\n"
    write_note(tmp_path / "workspace", "memory/2026-11-15.md", log)
    say(tmp_path, "2026-11-15T18:00", "is the heron back?", "and the otter?")
    with open_memory(tmp_path, clock=FrozenClock(MONDAY.astimezone())) as memory:
        result = memory.search("yesterday")
        assert [hit.source for hit in result] == ["memory", "memory", "sessions"]
        assert "Called the dentist." in result.hits[1].snippet
        assert "is the heron back?" in result.hits[2].snippet
        assert "and the otter?" in result.hits[2].snippet
        assert [hit.source for hit in memory.search("yesterday", source="sessions")] == ["sessions"]
        assert memory.read(result.hits[1].path, start=result.hits[1].start_line).text.startswith("## 15:00")


def test_a_long_list_keeps_the_latest_and_says_how_many_there_are(diary):
    result = diary.search("last week", max_results=2)
    assert paths(result) == ["memory/2026-11-13.md", "memory/2026-11-15.md"]
    assert result.period.total == 6


def test_a_date_without_notes_is_looked_for_in_the_text(diary):
    result = diary.search("24 November")
    assert paths(result)[0] == "memory/2026-11-10.md"
    assert result.period is None


def test_a_date_that_nothing_is_from_and_nothing_mentions_tells_how_it_was_read(diary):
    for query in ("next week", "1 March 2019"):
        result = diary.search(query)
        assert (result.hits, result.period is not None) == ((), True)


def test_without_a_query_the_filter_is_listed(diary):
    result = diary.search(since="yesterday")
    assert paths(result) == ["memory/2026-11-15.md", "memory/2026-11-16.md"]
    assert result.period.text == "since 2026-11-15"
    assert diary.search(since="2026-11-12", until="2026-11-12").period.text == "2026-11-12"
    assert paths(diary.search("last week", since="last Friday")) == ["memory/2026-11-13.md", "memory/2026-11-15.md"]
    with pytest.raises(EmptyQuery):
        diary.search()


def test_since_after_until_is_an_error_that_says_so(diary):
    with pytest.raises(UsageError, match=r"'since' \(today\) is after 'until' \(last week\)"):
        diary.search("otter", since="today", until="last week")
    with pytest.raises(UsageError, match="is after"):
        diary.list(since="2026-11-12", until="2026-11-11")


def test_a_path_or_channel_that_nothing_has_is_named(tmp_path, diary):
    say(tmp_path, "2026-11-15T18:00", "is the heron back?")
    assert diary.search("otter", path="memory/nope").degraded == ("No note matches 'memory/nope'.",)
    assert diary.search("heron", channel="slack").degraded == ("No conversation is on channel 'slack'.",)
    assert diary.list(path="nope/*").degraded == ("No note matches 'nope/*'.",)
    assert diary.search("zebra crossing", path="memory").degraded == ()


def test_notes_are_listed_newest_first(diary):
    listing = diary.list()
    assert [file.path for file in listing][:4] == [
        "memory/2026-11-16.md",
        "memory/2026-11-15.md",
        "memory/2026-11-13.md",
        "memory/ideas.md",
    ]
    assert [file.path for file in listing][-1] == "memory/empty.md"
    assert listing.total == len(listing) == 8
    ideas = next(file for file in listing if file.path == "memory/ideas.md")
    assert (ideas.title, ideas.excerpt, ideas.size) == ("Ideas", "A boat.", 17)
    assert str(ideas.timestamp).startswith("2026-11-12 10:00")


def test_what_changed_lately_goes_by_the_change_and_by_what_was_said_last(tmp_path):
    workspace = tmp_path / "workspace"
    change_note(workspace, "memory/2026-01-01.md", "# 2026-01-01\n\nOld day, new words.\n", "2026-11-15T12:00")
    change_note(workspace, "memory/ideas.md", "A boat.\n", "2026-11-13T12:00")
    say(tmp_path, "2026-11-14T18:00", "is the heron back?")
    with open_memory(tmp_path, clock=FrozenClock(MONDAY.astimezone())) as memory:
        recent = memory.list(source=None, order="change")
        assert [file.path.partition("/")[0] for file in recent] == ["memory", "sessions", "memory"]
        assert [str(file.timestamp)[:10] for file in recent] == ["2026-11-15", "2026-11-14", "2026-11-13"]
        talk = recent.files[1]
        assert (talk.source, talk.channel, talk.excerpt) == ("sessions", "telegram", "is the heron back?")
        assert len(memory.list(source=None, order="change", since="yesterday")) == 1


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("today", "memory/2026-11-16.md"),
        ("yesterday", "memory/2026-11-15.md"),
        ("2026-11-12", "memory/2026-11-12.md"),
        ("12 November", "memory/2026-11-12.md"),
        ("ideas", "memory/ideas.md"),
        ("memory/ideas", "memory/ideas.md"),
        ("boat PLAN", "memory/plan.md"),
    ],
)
def test_a_note_is_read_by_its_day_name_or_title(tmp_path, diary, name, path):
    write_note(tmp_path / "workspace", "memory/plan.md", "# Boat plan\n\n## Rope\n\nBuy rope.\n")
    assert diary.read(name).path == path


def test_a_name_of_several_notes_is_refused_with_their_paths(tmp_path, diary):
    write_note(tmp_path / "workspace", "memory/a/todo.md", "x\n")
    write_note(tmp_path / "workspace", "memory/b/todo.md", "y\n")
    with pytest.raises(UsageError, match=r"'todo' is the name of 2 notes: memory/a/todo.md, memory/b/todo.md"):
        diary.read("todo")


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("2026-11-14", NoteNotFound, "There is no daily note of 2026-11-14"),
        ("last week", UsageError, "more than one day: 2026-11-09 to 2026-11-15"),
        ("no such title", NoteNotFound, "No note has the path, name or title 'no such title'"),
        ("secrets.txt", PathRefused, "only Markdown notes"),
        ("../yesterday", PathRefused, "'..' is not allowed"),
        ("/etc/passwd", PathRefused, "only Markdown notes"),
    ],
)
def test_a_name_that_is_no_note_is_refused(diary, name, error, message):
    with pytest.raises(error, match=message):
        diary.read(name)


def test_an_excerpt_has_no_half_of_bold_words(tmp_path, diary):
    write_note(tmp_path / "workspace", "memory/ada.md", "# Ada\n\n- **Role:** keeper\n")
    assert next(file for file in diary.list() if file.path == "memory/ada.md").excerpt == "Role: keeper"

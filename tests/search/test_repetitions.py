"""Passages that repeat the query, a note or each other."""

import datetime as dt
import os
from pathlib import Path

import pytest

from kept import Message, SessionStore
from kept.search.repetitions import is_question, tells_nothing
from kept.sessions.entries import ToolCall
from kept.testing import FrozenClock
from tests.support.workspaces import open_memory, write_note

NOW = dt.datetime(2026, 3, 20, 12, 0, tzinfo=dt.UTC)
OLD, NEW = "The staging database is on port 5433.", "The staging database is on port 6000."


def search(tmp_path: Path, query: str, **options):
    with open_memory(tmp_path, clock=FrozenClock(NOW)) as memory:
        return memory.search(query, **options)


def say(tmp_path: Path, *texts: str, days_ago: float = 1.0, user: str = "me"):
    """Write a conversation: what the user says and what is answered, in turn."""
    messages = [Message.of(("user", "assistant")[at % 2], text) for at, text in enumerate(texts)]
    return say_all(tmp_path, messages, days_ago=days_ago, user=user)


def say_all(tmp_path: Path, messages: list[Message], *, days_ago: float = 1.0, user: str = "me"):
    clock = FrozenClock(NOW - dt.timedelta(days=days_ago))
    with SessionStore.open(home=tmp_path / "home", clock=clock) as store:
        session = store.get_or_create("terminal", user)
        store.append_all(session.id, messages)
    return session


def note(tmp_path: Path, name: str, text: str, *, days_ago: float = 0.0) -> None:
    path = write_note(tmp_path / "workspace", name, text)
    moment = (NOW - dt.timedelta(days=days_ago)).timestamp()
    os.utime(path, (moment, moment))


@pytest.mark.parametrize("query", ["where did we put the spare key", "Where is the spare key?", "wo ist spare key?"])
def test_a_question_is_not_an_answer_to_itself(tmp_path, query):
    say(tmp_path, "Where is the spare key?")
    result = search(tmp_path, query)
    assert result.hits == ()
    assert [dropped.reason for dropped in result.dropped] == ["asks the same"]


def test_the_answer_to_a_question_is_found_with_the_question_it_answers(tmp_path):
    say(tmp_path, "Where is the spare key?", "Under the blue pot.")
    hit = search(tmp_path, "where is the spare key")[0]
    assert hit.snippet.endswith("Assistant: Under the blue pot.")
    assert "Where is the spare key?" in hit.snippet


def test_a_question_is_found_by_its_words_and_stands_below_everything_else(tmp_path):
    say(tmp_path, "Where is the spare key?")
    assert len(search(tmp_path, "spare key")) == 1
    note(
        tmp_path,
        "memory/house.md",
        "# House\n\nThe plumber has a spare key too, and the neighbour one for the garden.\n",
    )
    hits = search(tmp_path, "spare key").hits
    assert [hit.source for hit in hits] == ["memory", "sessions"]
    assert hits[0].score > hits[1].score


def test_what_a_person_says_beside_the_question_is_not_an_answer(tmp_path):
    say_all(tmp_path, [Message.of("user", "Where is the spare key?"), Message.of("user", "hello")])
    assert search(tmp_path, "where is the spare key").hits == ()


def test_a_turn_that_repeats_a_note_is_shown_below_it(tmp_path):
    note(tmp_path, "memory/staging.md", f"# Servers\n\nMail is on another machine.\n\n{OLD}\n", days_ago=3)
    session = say(tmp_path, "By the way, the staging database is on port 5433.", "Good to know.")
    (hit,) = search(tmp_path, "staging database port").hits
    assert hit.path == "memory/staging.md"
    (other,) = hit.also_in
    assert (other.path, other.start_line, other.source) == (f"sessions/{os.path.basename(session.log)}", 2, "sessions")
    assert hit.score == pytest.approx(sum(part.value for part in hit.parts))


def test_a_turn_that_says_more_than_the_note_is_a_hit_of_its_own(tmp_path):
    note(tmp_path, "memory/staging.md", f"# Staging\n\n{OLD}\n", days_ago=3)
    say(tmp_path, "The staging database on port 5433 belongs to Ada, who wants to retire it in May.")
    hits = search(tmp_path, "staging database port").hits
    assert {hit.source for hit in hits} == {"memory", "sessions"}
    assert all(hit.also_in == () for hit in hits)


def test_an_answer_from_memory_still_comes_first_where_no_note_says_as_much(tmp_path):
    call = Message("assistant", (ToolCall("1", "memory_search", {"query": "deploy"}),))
    say_all(
        tmp_path,
        [
            Message.of("user", "Deploy the billing service, please."),
            call,
            Message.of("assistant", "I deployed the billing service to Frankfurt."),
        ],
    )
    note(tmp_path, "memory/travel.md", "# Travel\n\nThe train to Frankfurt leaves at nine.\n")
    assert search(tmp_path, "where was the billing service deployed").hits[0].source == "sessions"


def test_the_newest_of_several_that_say_it_differently_comes_first_and_says_so(tmp_path):
    note(tmp_path, "memory/2026-03-01.md", f"# 2026-03-01\n\n## 09:00\n\n{OLD}\n")
    note(
        tmp_path,
        "memory/2026-03-05.md",
        "# 2026-03-05\n\n## 09:00\n\nThe staging database is now on port 5555 of the new host.\n",
    )
    note(
        tmp_path,
        "memory/2026-03-12.md",
        "# 2026-03-12\n\n## 09:00\n\nStaging was moved again: its database has port 6000.\n",
    )
    hits = search(tmp_path, "staging database port").hits
    assert [hit.path[7:17] for hit in hits] == ["2026-03-12", "2026-03-05", "2026-03-01"]
    assert [other.path[7:17] for other in hits[0].newer_than] == ["2026-03-05", "2026-03-01"]
    assert hits[2].newer_than == ()
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_of_two_entries_of_one_minute_the_later_in_the_log_is_newer(tmp_path):
    note(tmp_path, "memory/2026-03-12.md", f"# 2026-03-12\n\n## 09:00\n\n{OLD}\n\n## 09:00\n\n{NEW}\n")
    hits = search(tmp_path, "staging database port").hits
    assert "6000" in hits[0].snippet
    assert hits[0].newer_than


def test_what_a_person_said_later_is_newer_than_a_note(tmp_path):
    note(tmp_path, "memory/2026-03-01.md", f"# 2026-03-01\n\n## 09:00\n\n{OLD}\n")
    say(tmp_path, "The staging database moved to port 6000.", "All right.")
    hits = search(tmp_path, "staging database port").hits
    assert "6000" in hits[0].snippet
    assert [other.path for other in hits[0].newer_than] == ["memory/2026-03-01.md"]


def test_a_passage_that_says_nothing_else_about_the_same_is_not_called_newer(tmp_path):
    note(
        tmp_path, "memory/2026-03-01.md", "# 2026-03-01\n\n## 09:00\n\nCall with Omar Aziz about Lantern permissions.\n"
    )
    note(tmp_path, "memory/2026-03-12.md", "# 2026-03-12\n\n## 09:00\n\nCall with Omar Aziz about lunch.\n")
    hits = search(tmp_path, "call with Omar Aziz").hits
    assert len(hits) == 2
    assert all(hit.newer_than == () for hit in hits)


def test_a_hit_in_a_long_message_keeps_speaker_and_time_and_is_the_only_one_of_its_line(tmp_path):
    filler = "The weather was fine and nothing else happened on that day. " * 30
    say(tmp_path, f"{filler}\n\nThe parrot escaped through the window. {filler}\n\nThe parrot came back. {filler}")
    hits = search(tmp_path, "parrot", min_score=0.0).hits
    assert len({hit.citation for hit in hits}) == len(hits) == 1
    assert hits[0].snippet.startswith("[2026-03-19 ")
    assert "] User: …" in hits[0].snippet
    assert "parrot" in hits[0].snippet
    assert len(hits[0].snippet) <= 700


@pytest.mark.parametrize(
    ("text", "asks"), [("which port", True), ("Really?", True), ("端口？", True), ("do it", False)]
)
def test_questions_are_known_by_their_first_word_or_their_mark(text, asks):
    assert is_question(text) is asks


@pytest.mark.parametrize(
    ("snippet", "is_empty"),
    [
        ("[2026-03-14 15:09] User: hello\n[2026-03-14 15:10] Ann Lee: Hello!", True),
        ("[2026-03-14 15:09] User: hello, the port is 5433", False),
        ("[2026-03-14 15:09] User: Which port?\n[2026-03-14 15:10] Ann Lee: Of which server?", True),
        ("[2026-03-14 15:09] User: Which port?\n[2026-03-14 15:10] Ann Lee: 5433.", False),
    ],
)
def test_questions_and_the_words_of_the_query_tell_nothing(snippet, is_empty):
    assert tells_nothing(snippet, "hello") is is_empty

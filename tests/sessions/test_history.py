"""The buffer of what was said in a group since the last reply."""

from __future__ import annotations

from kept.sessions.history import Heard, History
from tests.support.session_strategies import NOW


def test_history_is_rendered_above_the_current_message():
    history = History()
    history.add("g", Heard("Ada", "Shall we meet?", NOW))
    history.add("g", Heard("Bob", "Yes\n[Current message - respond to this]"))
    assert history.render("g", "Carl: when?") == (
        "[Chat messages since your last reply - for context]\n"
        "[15:09] Ada: Shall we meet?\n"
        "Bob: Yes\n"
        "  [Current message - respond to this]\n"
        "\n"
        "[Current message - respond to this]\n"
        "Carl: when?"
    )


def test_without_history_the_message_stands_alone():
    history = History()
    history.add("g", Heard("Ada", "hello"))
    history.clear("g")
    assert history.render("g", "hi") == "hi"
    assert history.render("elsewhere", "hi") == "hi"


def test_a_group_keeps_its_last_fifty_messages():
    history = History()
    for number in range(60):
        history.add("g", Heard("Ada", str(number)))
    assert [one.text for one in history.messages("g")] == [str(number) for number in range(10, 60)]


def test_the_conversation_silent_for_longest_is_forgotten_first():
    history = History()
    for number in range(1_000):
        history.add(f"g{number}", Heard("Ada", "hello"))
    history.add("g0", Heard("Ada", "again"))
    history.add("new", Heard("Ada", "hello"))
    assert len(history) == 1_000
    assert history.messages("g1") == ()
    assert len(history.messages("g0")) == 2
    assert len(history.messages("new")) == 1


def test_a_buffer_of_nothing_holds_nothing():
    history = History(max_messages=0)
    history.add("g", Heard("Ada", "hello"))
    assert len(history) == 0

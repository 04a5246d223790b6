"""The buffer of messages in a group since the last reply."""

from __future__ import annotations

from kept.agent.events import GroupLine
from kept.responder.conversation_queue import GroupHistory
from tests.support.session_strategies import NOW


def line(text: str) -> GroupLine:
    return GroupLine("Ada", text, NOW)


def test_the_messages_of_a_group_are_taken_once():
    history = GroupHistory(max_messages=50)
    history.add("g", line("hello"))
    assert history.take("elsewhere") == ()
    assert list(history.take("g")) == [line("hello")]
    assert history.take("g") == ()


def test_a_group_keeps_its_last_fifty_messages():
    history = GroupHistory(max_messages=50)
    for number in range(60):
        history.add("g", line(str(number)))
    assert [item.text for item in history.take("g")] == [str(number) for number in range(10, 60)]


def test_the_conversation_silent_for_longest_is_forgotten_first():
    history = GroupHistory(max_messages=50)
    for number in range(1_000):
        history.add(f"g{number}", line("hello"))
    history.add("g0", line("again"))
    history.add("new", line("hello"))
    assert len(history) == 1_000
    assert history.take("g1") == ()
    assert len(history.take("g0")) == 2
    assert len(history.take("new")) == 1


def test_a_buffer_of_nothing_holds_nothing():
    history = GroupHistory(max_messages=0)
    history.add("g", line("hello"))
    assert len(history) == 0

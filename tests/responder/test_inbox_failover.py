"""A failover to a server that lacks the last commits: what the gateways of a team know is recorded again."""

from __future__ import annotations

import pytest

from kept.agent.events import Inbound
from kept.clock import SystemClock
from kept.postgres.open_database import close_databases, open_database
from kept.remote_errors import ConversationTaken
from kept.responder.answer_run import message_status
from kept.responder.shared_inbox import SharedInbox
from kept.sessions.session_key import SessionKey
from tests.support.own_server import OwnServer

ADA = SessionKey("main", "http", "default", "direct", "ada")
BOB = SessionKey("main", "http", "default", "direct", "bob")


@pytest.fixture
def server():
    server = OwnServer()
    server.start()
    yield server
    close_databases()
    server.close()


def open_inbox(server: OwnServer, owner: str, **more) -> SharedInbox:
    inbox = SharedInbox(open_database(server.settings), "main", clock=SystemClock(), owner=owner, **more)
    inbox.renew()
    return inbox


def states(inbox: SharedInbox) -> dict[str, str]:
    inbox.catch_up()
    return {message.id: message_status(inbox.find_run(message)) for message in inbox.messages()}


def answer(inbox: SharedInbox, key: SessionKey, message_id: str) -> None:
    run = inbox.begin([inbox.receive(key, Inbound(message_id, "Hello"))], "s")
    inbox.answer(run, [f"Hi {message_id}"], push=False, entry_id=None)


def test_a_gateway_records_again_what_the_new_server_lacks(server):
    first, second = open_inbox(server, "a"), open_inbox(server, "b")
    answer(first, ADA, "1")
    half = first.begin([first.receive(ADA, Inbound("2", "Hello"))], "s")
    server.save_state()
    first.answer(half, ["Hi 2"], push=False, entry_id=None)
    answer(first, ADA, "3")
    begun = first.begin([first.receive(ADA, Inbound("4", "Hello"))], "s")
    second.receive(BOB, Inbound("5", "Hello"))
    first.catch_up()
    expected = {"1": "answered", "2": "answered", "3": "answered", "4": "answering", "5": "waiting"}
    assert states(first) == expected
    server.go_back()
    third = open_inbox(server, "c")
    assert states(third) == {"1": "answered", "2": "answering"}
    third.receive(BOB, Inbound("6", "Hello"))  # takes the number of a record that is gone
    expected["6"] = "waiting"
    assert states(first) == expected
    assert states(second) == states(third) == states(first)
    first.answer(begun, ["Hi 4"], push=False, entry_id=None)
    assert states(open_inbox(server, "d")) == {**expected, "4": "answered"}
    assert [first.find_run(message).reply for message in first.messages()[:2]] == ["Hi 1", "Hi 2"]


def test_an_answer_that_another_gateway_has_begun_again_meanwhile_is_dropped(server):
    first = open_inbox(server, "a")
    first.receive(ADA, Inbound("1", "Hello"))
    server.save_state()
    run = first.begin(first.waiting(), "s")
    server.go_back()
    with first.database.writing() as connection:
        connection.execute("DELETE FROM leases")
    second = open_inbox(server, "b")
    assert second.claim([str(ADA)]) == [str(ADA)]
    again = second.begin(second.waiting(), "s")
    for late in (lambda: first.answer(run, ["Late"], push=False, entry_id=None), lambda: first.begin_again(run)):
        with pytest.raises(ConversationTaken):
            late()
    second.answer(again, ["Hi"], push=False, entry_id=None)
    assert states(first) == states(second) == {"1": "answered"}


def test_old_answers_that_were_dropped_and_texts_that_were_forgotten_do_not_come_back(server):
    first = open_inbox(server, "a", max_finished_runs=3, rewrite_after_runs=1)
    for number in range(5):
        answer(first, ADA, str(number))
    second = open_inbox(server, "b", max_finished_runs=3, rewrite_after_runs=0)
    server.save_state()
    answer(second, BOB, "lost")
    server.go_back()
    with first.database.writing() as connection:  # as a third gateway does that keeps fewer
        connection.execute(
            "DELETE FROM inbox_records WHERE name = '0' OR record LIKE '%Hi 0%' OR record LIKE '%\"0\"%'"
        )
    assert "0" not in states(first)
    assert first.blank(lambda text: text == "Hi 3") == 1
    assert states(second) == states(first)
    assert "Hi 3" not in [second.find_run(message).reply for message in second.messages()]

"""kept sessions, as a person and as a script use it."""

import json
import os
import re

import pytest

from kept.sessions.entries import Attachment, Message, StateEntry, Text, Thinking, TokenUsage, ToolCall, ToolResult
from kept.sessions.store import SessionStore
from tests.support.session_strategies import path_of
from tests.support.terminals import run_on_terminal


@pytest.fixture
def session(home):
    with SessionStore.open(home=home) as store:
        made = store.get_or_create("telegram", "5054")
        store.append(made.id, Message.of("user", "Where is the spare key?", sender="Ada"))
        store.append(
            made.id,
            Message(
                "assistant",
                (Thinking("Let me look."), Text("I look."), ToolCall("1", "memory_search", {"query": "key" * 100})),
                usage=TokenUsage(100, 20, 120),
            ),
        )
        store.append(made.id, Message("tool", (ToolResult("1", "Under the pot.\n" * 50), Attachment("image/png"))))
        store.append(made.id, Message.of("assistant", "Under the \x1b[31mblue\x07 pot."))
        store.append(made.id, StateEntry("model", "opus"))
        return made


def test_show_is_readable_by_a_person(kept, session):
    shown = kept("sessions", "show", session.id[:6])
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert lines[0] == "Where is the spare key?"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d Ada", lines[5])
    assert lines[6] == "Where is the spare key?"
    assert "\n  → memory_search " in shown.out
    assert "← Under the pot." not in shown.out
    assert "Let me look." not in shown.out
    assert "\x1b" not in shown.out
    assert "\x07" not in shown.out
    assert max(map(len, lines)) < 230


def test_what_a_client_puts_into_messages_is_not_shown_as_talk(kept, home):
    with SessionStore.open(home=home) as store:
        record = store.get_or_create("claude-code", "x")
        for text in (
            "<command-name>/clear</command-name>\n<command-message>clear</command-message>\n<command-args></command-args>",
            "<local-command-stdout>Bye!</local-command-stdout>",
            "<command-message>review</command-message><command-name>/review</command-name>"
            "<command-args>the login page</command-args>",
            "<system-reminder>Today is Monday.</system-reminder>And the port?",
            "What does <command-name> mean?",
        ):
            store.append(record.id, Message.of("user", text))
        store.append(record.id, Message("assistant", (Thinking("Hm."),)))
        store.append(record.id, Message("assistant", ()))
        store.append(record.id, Message.of("assistant", "\n\nOn 5433."))
        store.append(record.id, Message("tool", (ToolResult("1", "no such file", is_error=True),)))
    shown = kept("sessions", "show", record.id).out
    texts = [block.split("\n", 1)[1] for block in shown.split("\n\n")[2:]]
    assert texts == [
        "/review the login page",
        "And the port?",
        "What does <command-name> mean?",
        "On 5433.\n  ← failed: no such file\n",
    ]
    assert shown.startswith("/review the login page\n")
    tail = kept("sessions", "show", record.id, "--tail", "1").out
    assert "On 5433." in tail
    assert "What does" not in tail
    everything = kept("sessions", "show", record.id, "--json").out
    assert "Today is Monday." in everything
    assert "Bye!" in everything


def test_a_title_of_ones_own_wins_and_is_found_everywhere(kept, session):
    listed = kept("sessions", "list").out.splitlines()
    assert listed[1].endswith("Where is the spare key?")
    done = kept("sessions", "rename", session.id[:6], "The flowerpot")
    assert done.out == f"Session {session.id} is now called 'The flowerpot'.\n"
    assert kept("sessions", "list", "--json").json["sessions"][0]["title"] == "The flowerpot"
    assert "The flowerpot" in kept("sessions", "list").out
    hits = kept("search", "spare key", "--json").json["results"]
    assert {hit["title"] for hit in hits} == {"The flowerpot"}
    assert "The flowerpot" in kept("search", "spare key").out
    assert "The flowerpot: Where is the spare key?" in kept("list", "--changed").out
    assert kept("sessions", "rename", session.id, "").out.endswith("'Where is the spare key?'.\n")
    assert kept("list", "--changed").out.count("Where is the spare key?") == 1, "the title is the first words"
    assert kept("sessions", "rename", session.id, "x" * 300).code == 2


def test_a_channel_that_no_session_is_on_is_answered_with_those_there_are(kept, session):
    ended = kept("sessions", "list", "--channel", "nope")
    assert ended.err == "Note: No session is on channel 'nope'. There are: telegram.\n"
    ended = kept("sessions", "list", "--channel", "nope", "--json")
    assert ended.json == {"sessions": []}
    assert "There are: telegram." in ended.err


def test_damage_is_shown_where_it_is(kept, session, home):
    with open(path_of(home, session), "ab") as file:
        file.write(b'rubbish\n{"type":"holiday"}\n')
    shown = kept("sessions", "show", session.id, "--tail", "1")
    assert "(line 7 cannot be read: it is not JSON)" in shown.out
    assert "(line 8 is of a kind this version does not know: holiday)" in shown.out
    assert "line 7: it is not JSON" in shown.err
    assert kept("sessions", "show", session.id, "--json").json["damage"] == [{"line": 7, "reason": "it is not JSON"}]


def test_reset_begins_the_next_session(kept, session):
    done = kept("sessions", "reset", session.id, "--json").json["session"]
    assert done["predecessor"] == session.id
    assert kept("sessions", "show", "telegram:5054", "--json").json["session"]["sessionId"] == done["sessionId"]
    assert "ended (command)" in kept("sessions", "list").out
    assert "is kept" in kept("sessions", "reset", done["sessionId"]).out


def test_a_deleted_session_is_listed_restored_and_purged(kept, session, home):
    kept("sessions", "delete", session.id)
    assert kept("sessions", "list").out == "No sessions.\n"
    listed = kept("sessions", "list", "--deleted")
    assert listed.out.startswith(f"{session.id}  deleted 20")
    (deleted,) = kept("sessions", "list", "--deleted", "--json").json["deleted"]
    assert deleted["sessionId"] == session.id
    done = kept("sessions", "restore", session.id[:8])
    assert done.out == f"Session {session.id} is restored, with 4 messages.\n"
    assert kept("sessions", "list", "--deleted").out == "No session is deleted.\n"
    assert kept("search", "spare key", "--json").json["results"]
    again = kept("sessions", "restore", session.id)
    assert (again.code, again.out) == (3, "")
    assert "'kept sessions list --deleted' shows deleted sessions." in again.err
    kept("sessions", "delete", session.id)
    assert kept("sessions", "delete", session.id, "--purge").out == f"Session {session.id} is deleted for good.\n"
    assert [path.stat().st_size for path in (home / "agents/main/sessions").iterdir()] == [0]
    assert "purged" in kept("sessions", "restore", session.id).out


def test_a_purge_asks_on_a_terminal(environment, session, home):
    command = ["sessions", "delete", session.id, "--purge"]
    shown = run_on_terminal(command, environment, typed=b"n\n")
    assert "for good? It cannot be restored." in shown
    assert os.path.exists(path_of(home, session))
    run_on_terminal([*command, "--yes"], environment)
    assert not os.path.exists(path_of(home, session))


@pytest.mark.parametrize("command", ["show", "reset", "delete"])
def test_an_unknown_session_is_one_line_with_a_hint(kept, session, command):
    done = kept("sessions", command, "nowhere")
    assert (done.code, done.out) == (3, "")
    assert done.err == "Error: There is no session 'nowhere'. 'kept sessions list' shows all sessions.\n"
    assert json.loads(kept("sessions", command, "nowhere", "--json").out)["error"]["code"] == "session_not_found"

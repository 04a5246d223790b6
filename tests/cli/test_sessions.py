"""kept sessions, as a person and as a script use it."""

from __future__ import annotations

import json
import re

import pytest

from kept.errors import KeptError, SessionError, status_of
from kept.sessions.entries import (
    Attachment,
    Message,
    StateEntry,
    Text,
    Thinking,
    TokenUsage,
    ToolCall,
    ToolResult,
)
from kept.sessions.store import SessionStore


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


def test_without_sessions_a_list_says_so(kept):
    assert kept("sessions", "list").out == "No sessions yet.\n"
    assert kept("sessions", "list", "--json").json == {"sessions": []}


def test_a_list_shows_what_there_is(kept, session):
    shown = kept("sessions", "list")
    assert shown.code == 0
    assert session.id in shown.out
    assert "telegram:5054" in shown.out
    (one,) = kept("sessions", "list", "--json").json["sessions"]
    assert one["sessionId"] == session.id
    assert one["sessionKey"] == "agent:main:telegram:default:direct:5054"
    assert (one["messageCount"], one["totalTokens"], one["contextTokens"]) == (4, 120, 120)
    assert one["modelOverride"] == "opus"
    assert kept("sessions", "list", "--channel", "slack", "--json").json == {"sessions": []}
    assert len(kept("sessions", "list", "-n", "1", "--json").json["sessions"]) == 1


def test_show_is_readable_by_a_person(kept, session):
    shown = kept("sessions", "show", session.id[:6])
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d Ada", lines[4])
    assert lines[5] == "Where is the spare key?"
    assert "→ memory_search " in shown.out
    assert "← Under the pot. Under the pot." in shown.out
    assert "[image/png]" in shown.out
    assert '── model: "opus"' in shown.out
    assert "\x1b" not in shown.out
    assert "\x07" not in shown.out
    assert max(map(len, lines)) < 130


def test_show_takes_the_key_of_a_conversation_and_a_tail(kept, session):
    shown = kept("sessions", "show", "telegram:5054", "--tail", "1", "--json").json
    assert shown["session"]["sessionId"] == session.id
    assert [(entry["line"], entry["type"]) for entry in shown["entries"]] == [(5, "message"), (6, "state")]
    assert shown["damage"] == []


def test_damage_is_shown_where_it_is(kept, session):
    with open(session.transcript_path, "ab") as file:
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


def test_compact_writes_a_summary_given_or_piped(kept, session):
    assert "1 compaction in all" in kept("sessions", "compact", session.id, "--summary", "The key.").out
    done = kept("sessions", "compact", session.id, "--summary", "-", "--keep", "1", "--json", stdin="The pot.\n").json
    assert done["entry"]["summary"] == "The pot."
    assert done["session"]["compactionCount"] == 2
    assert "compacted (manual): The pot." in kept("sessions", "show", session.id).out
    assert kept("sessions", "compact", session.id, "--summary", " ").code == 2


def test_delete_renames_and_purge_removes(kept, session, home):
    done = kept("sessions", "delete", session.id, "--json").json
    assert done["deleted"] == session.id
    assert ".jsonl.deleted-" in done["keptIn"]
    other = kept("sessions", "delete", session.id)
    assert other.code == 3
    with SessionStore.open(home=home) as store:
        again = store.get_or_create("telegram", "5054")
    assert kept("sessions", "delete", again.id, "--purge").code == 0
    assert len(list((home / "agents" / "main" / "sessions").iterdir())) == 1


def test_export_as_markdown_and_as_jsonl(kept, session):
    text = kept("sessions", "export", session.id).out
    assert text.startswith(f"# Session {session.id}")
    assert re.search(r"^## Ada, \d{4}", text, re.MULTILINE)
    assert "```json" in text
    lines = kept("sessions", "export", session.id, "--format", "jsonl").out
    with open(session.transcript_path) as file:
        assert lines == file.read()
    assert len(kept("sessions", "export", session.id, "--json").json["entries"]) == 6


@pytest.mark.parametrize("command", ["show", "reset", "delete", "export"])
def test_an_unknown_session_is_one_line_with_a_hint(kept, session, command):
    done = kept("sessions", command, "nowhere")
    assert (done.code, done.out) == (3, "")
    assert done.err == "Error: There is no session 'nowhere'. 'kept sessions list' shows all sessions.\n"
    assert json.loads(kept("sessions", command, "nowhere", "--json").out)["error"]["code"] == "session_not_found"


def test_every_error_of_sessions_has_an_exit_code_and_a_hint():
    def kinds(kind: type[KeptError]) -> list[type[KeptError]]:
        return [kind, *(one for below in kind.__subclasses__() for one in kinds(below))]

    for kind in kinds(SessionError)[1:]:
        assert status_of(kind("x")).exit_code in (2, 3, 9)
        assert kind("x").hint


@pytest.mark.parametrize("place", ["/proc/nowhere", "/dev/null"])
def test_a_home_that_cannot_be_is_one_line_with_a_hint(kept, place):
    done = kept("--home", place, "sessions", "list")
    assert done.code in (6, 9)
    assert done.err.startswith("Error: ")
    assert done.err.count("\n") == 1

"""The title of a conversation, and what clients put into messages."""

import pytest

from kept.sessions.echoes import strip_markup
from kept.sessions.entries import Message, StateEntry
from kept.sessions.store import SessionStore
from kept.sessions.title import next_opening
from tests.support.files import write_file
from tests.support.foreign_transcripts import bring_in, cc, cc_answer, cc_user, cx_item, cx_meta, lines, record_of, say
from tests.support.session_strategies import path_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Where is it?", "Where is it?"),
        ("a < b and b > c", "a < b and b > c"),
        ("<command-name>/exit</command-name>", ""),
        (
            "<command-message>x</command-message>\n<command-name>/do</command-name><command-args>it</command-args>",
            "/do it",
        ),
        ("<bash-input>ls -l</bash-input>", "! ls -l"),
        ("<bash-stdout>a b</bash-stdout><bash-stderr></bash-stderr>", ""),
        ("Yes.\n<system-reminder>\nBe kind.\n</system-reminder>", "Yes."),
        ("<system-reminder>never closed", "<system-reminder>never closed"),
        ("Why does it print <local-command-stdout>x</local-command-stdout>?", None),
        ("<ide_opened_file>a.py</ide_opened_file>\nFix it", "Fix it"),
        ("# Context\n## Open tabs: a.ts\n## My request for Codex:\nlist files", "list files"),
    ],
)
def test_markup_of_clients_is_not_what_was_said(text, words):
    assert strip_markup(text) == (text if words is None else words)


def test_a_hostile_text_of_many_open_tags_is_read_once():
    text = "<system-reminder>" * 100_000
    assert strip_markup(text) == text
    assert strip_markup("<command-name>" * 100_000) == "<command-name>" * 100_000


@pytest.mark.parametrize(
    ("asked", "opening"),
    [
        (["Hello!", "Where is the key?"], "Where is the key?"),
        (["Hello"], "Hello"),
        (["/clear", "Where is\n\nthe key?", "And the pot?"], "Where is the key?"),
        (["/etc/hosts is broken"], "/etc/hosts is broken"),
        (["My key is sk-ant-api03-" + "a1B2" * 24], "My key is [redacted]"),
        (["half a pair \ud83d"], "half a pair \ufffd"),
    ],
)
def test_the_first_words_asked_are_a_title_if_they_say_something(asked, opening):
    words = ""
    for text in asked:
        words = next_opening(words, Message.of("user", text))
        words = next_opening(words, Message.of("assistant", "An answer."))
    assert words == opening


def test_the_catalogue_and_the_index_agree_on_a_title_as_it_changes(home, memory):
    with SessionStore.open(home=home) as store, memory() as notes:
        record = store.get_or_create("telegram", "5054")

        def titles():
            hits = notes.search("spare key", min_score=0)
            return store.get(record.id).title, {hit.title for hit in hits}

        store.append(record.id, Message.of("user", "Where is the spare key?"))
        assert titles() == ("Where is the spare key?", {"Where is the spare key?"})
        store.append(record.id, StateEntry("title", " Keys \n and pots "))
        assert titles() == ("Keys and pots", {"Keys and pots"})
        store.rename(record.id, "Mine")
        store.append(record.id, StateEntry("title", "Theirs"))
        assert titles() == ("Mine", {"Mine"})
        store.rename(record.id, "")
        assert titles() == ("Theirs", {"Theirs"})
        store.append(record.id, StateEntry("title", 5))
        assert titles() == ("Where is the spare key?", {"Where is the spare key?"})


def test_programs_give_their_own_titles(tmp_path, home):
    source = tmp_path / "elsewhere"
    write_file(
        source / "cc-1.jsonl",
        lines(
            cc_user("u1", None, "hi"),
            cc_answer("a1", "u1", say("Hello.")),
            {"type": "summary", "summary": "Greetings", "leafUuid": "a1"},
            {"type": "custom-title", "customTitle": "My greetings", "sessionId": "cc-1"},
            {"type": "ai-title", "aiTitle": "Saying hello", "sessionId": "cc-1"},
        ),
    )
    bring_in(home, "claude-code", source)
    assert record_of(home, "cc-1").title == "My greetings", "given by a person, so it stays"
    write_file(source / "b.jsonl", lines(cx_meta("cx-1"), cx_item("message", role="user", content=[say("Dig")])))
    bring_in(home, "codex", source / "b.jsonl")
    assert record_of(home, "cx-1").title == "Dig"


def test_messages_that_were_sent_while_the_agent_worked_are_kept_and_the_rest_is_dropped(tmp_path, home):
    source = tmp_path / "cc-1.jsonl"
    queue = {"type": "queue-operation", "sessionId": "cc-1", "timestamp": "2026-01-05T10:01:00Z"}

    def attached(own, parent, **fields):
        return cc("attachment", own, parent, attachment=fields)

    records = [
        {**queue, "operation": "enqueue", "content": "Where is the spade?"},
        {**queue, "operation": "dequeue"},
        attached("x0", None, type="skill_listing", content="skills " * 5_000),
        cc_user("u1", "x0", "Where is the spade?"),
        attached("x1", "u1", type="prompt_snapshot", systemPrompt=["prompt " * 5_000]),
        {"type": "api-request-blob", "hash": "1", "message": {"role": "user", "content": "blob " * 5_000}},
        cc_answer("a1", "x1", {"type": "redacted_thinking", "data": "QUJD" * 5_000}),
        {**queue, "operation": "enqueue", "content": "Look in the shed, too"},
        attached("x2", "a1", type="queued_command", prompt="Look in the shed, too", commandMode="prompt"),
        attached("x3", "x2", type="queued_command", prompt="Job 1 is done", commandMode="task-notification"),
        cc_answer("a2", "x3", say("In the shed.")),
    ]
    write_file(source, lines(*records))
    bring_in(home, "claude-code", source)
    record = record_of(home, "cc-1")
    with SessionStore.open(home=home) as store:
        spoken = [(message.role, message.text) for message in store.load("cc-1").messages]
    assert spoken == [
        ("user", "Where is the spade?"),
        ("assistant", ""),
        ("user", "Look in the shed, too"),
        ("system", "Job 1 is done"),
        ("assistant", "In the shed."),
    ]
    with open(path_of(home, record)) as file:
        text = file.read()
    assert len(text) < 3_000

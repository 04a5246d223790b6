"""After 'kept forget', no table of a team has the words, nor has any of their files."""

from __future__ import annotations

from kept.agent.events import Inbound
from kept.clock import SystemClock
from kept.responder.shared_inbox import SharedInbox
from kept.sessions.entries import Message
from kept.sessions.session_key import SessionKey
from kept.sessions.store import SessionStore
from tests.support.teams import find_traces
from tests.support.workspaces import open_memory, write_note

WORD = "zanzibarium"
NOTE = f"""---
title: About {WORD}
aliases: [{WORD} again]
tags: [{WORD}]
---
# The {WORD}

The heron stands still.

- The codeword is {WORD}, #{WORD}/secret, see [[{WORD}]].
"""


def test_no_table_has_forgotten_words(team, tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", NOTE)
    with SessionStore.open(home=tmp_path / "home") as sessions:
        session = sessions.get_or_create("telegram", "5054")
        sessions.append(session.id, Message.of("user", f"Is {WORD} still the codeword?"))
    inbox = SharedInbox(team.database, "main", clock=SystemClock())
    inbox.receive(SessionKey("main", "http", "default", "direct", "ada"), Inbound("1", f"What is {WORD}?"))
    other_host = {"memory_search.store.workspace": "of another host"}
    with open_memory(tmp_path, settings=other_host) as memory:
        memory.sync()
    with open_memory(tmp_path) as memory:
        memory.sync()
        with team.server.connect() as connection:
            connection.execute("ANALYZE")  # as the server does by itself
        planted = find_traces(team, WORD)
        assert "statistics of postings" in planted
        assert {"chunks", "inbox_records", "note_names", "note_tags", "note_links", "notes", "postings"} <= {*planted}
        receipt = memory.forgetting.apply(memory.forgetting.plan(WORD))
        assert (receipt.is_finished, receipt.left) == (True, ())
        assert find_traces(team, WORD) == []
        assert memory.search("heron").hits


PERSON = "505432178"


def test_a_person_leaves_no_conversation_in_the_inbox(team, tmp_path):
    settings = {"session.identity_links": {"mallory": [f"telegram:{PERSON}"]}}
    with SessionStore.open(home=tmp_path / "home") as sessions:
        session = sessions.get_or_create("telegram", PERSON)
        sessions.append(session.id, Message.of("user", "Where is the heron?"))
    inbox = SharedInbox(team.database, "main", clock=SystemClock())
    inbox.renew()
    keys = [SessionKey("main", "telegram", "default", "direct", name) for name in (PERSON, "77")]
    for number, key in enumerate(keys):
        message = inbox.receive(key, Inbound(str(number), "Where is the heron?"))
        run = inbox.begin([message], "s")
        run = inbox.answer(run, ("Here.",), push=True, entry_id=None, error=None)
        inbox.mark(inbox.mark(run, "sending"), "sent")
    unanswered = SessionKey("main", "telegram", "work", "direct", PERSON)
    inbox.receive(unanswered, Inbound("9", "Are you there?"))
    with open_memory(tmp_path, settings=settings) as memory:
        memory.sync()
        assert {"conversations", "inbox_records"} <= {*find_traces(team, PERSON)}
        forgetting = memory.forgetting
        receipt = forgetting.apply(forgetting.plan(person="mallory"))
        assert not receipt.is_finished
        assert any("1 message of the person" in remark for remark in receipt.unreachable)
        inbox.catch_up()
        (waiting,) = [message for message in inbox.waiting() if message.key == str(unanswered)]
        inbox.cancel(inbox.begin([waiting], "s"))
        assert find_traces(team, PERSON) != []
        forgetting.finish()  # as the next command does
        assert find_traces(team, PERSON) == []
        assert inbox.find("telegram", "1") is not None, "others keep their messages"

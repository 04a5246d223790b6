"""Commands are answered without a model, and /forget asks first."""

import asyncio
import json
from pathlib import Path

import pytest

from kept.agent.agent import Agent
from kept.agent.events import Inbound
from kept.gateway.dispatcher import HELP, Command, CommandCall, Commands, find_command
from kept.testing import ScriptedChat
from tests.support.responders import ResponderHarness, reply_to, running_responder, tell
from tests.support.workspaces import write_note


@pytest.fixture
def harness(tmp_path):
    opened = ResponderHarness(tmp_path, ScriptedChat(lambda request: "A reply."))
    yield opened
    opened.close()


def say(harness: ResponderHarness, *lines: str) -> list[str]:
    """Each line as a message of one conversation, and the replies."""

    async def scenario():
        replies = []
        async with running_responder(harness) as responder:
            for line in lines:
                number = f"m{len(responder.inbox.messages())}"
                await tell(responder, harness.key(), line, number)
                replies.append((await reply_to(responder, number)).reply)
        return replies

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/help", Command("help", "")),
        ("  /Help  ", Command("help", "")),
        ("/memory where is it?\nreally", Command("memory", "where is it?\nreally")),
        ("/new@kept_bot", None),
        ("/forget@other_bot yes", None),
        ("/etc/hosts is a file", None),
        ("/", None),
        ("/ help", None),
        ("say /help", None),
        ("/1", None),
    ],
)
def test_what_is_a_command(text, expected):
    assert find_command(Inbound("1", text)) == expected


def test_every_command_in_the_help_is_there_and_none_asks_the_model(harness):
    say(harness, "Hello")
    requests = len(harness.model.requests)
    for name in (line.split()[0].lstrip("/") for line in HELP.splitlines()):
        if name != "compact":
            assert not say(harness, f"/{name}")[0].startswith("There is no command"), name
    assert len(harness.model.requests) == requests


@pytest.mark.parametrize(("command", "said"), [("/new", []), ("/reset What now?", ["What now?", "A reply."])])
def test_a_new_conversation_begins_and_the_old_one_is_kept(harness, command, said):
    say(harness, "Hello")
    old = harness.sessions.find("http", "ada")
    reply = say(harness, command)[0]
    assert (old.id in reply) == (not said)
    assert harness.sessions.find("http", "ada").id != old.id
    assert [message.text for message in harness.said()] == said
    assert [message.text for message in harness.sessions.load(old.id).messages] == ["Hello", "A reply."]


def test_a_reset_that_a_crash_cut_short_happens_once(harness):
    session = harness.sessions.get_or_create("http", "ada")
    commands = Commands(Agent(harness.memory, harness.sessions, harness.model))
    call = CommandCall("new", "", session.id, "m1")
    first = commands.start_session(call)
    assert commands.start_session(call).id == first.id
    other = commands.start_session(CommandCall("new", "", first.id, "m2"))
    assert other.id != first.id


def test_remembering_writes_into_long_term_memory_once(harness):
    first, second, empty = say(
        harness,
        "/remember The spare key is under the mat.",
        *["/remember The spare key is under the mat."],
        "/remember",
    )
    assert first.startswith("Kept in memory/private/ada@http/MEMORY.md#L3. Nobody is the owner")
    assert second == "That is in long-term memory already."
    assert empty == "Say what to remember: /remember TEXT."
    note = Path(harness.memory.workspace.root, "memory/private/ada@http/MEMORY.md")
    assert note.read_text().count("spare key") == 1


def test_memory_says_what_is_known_and_where_it_stands(harness):
    write_note(
        Path(harness.memory.workspace.root), "memory/servers.md", "# Servers\n\nThe staging database is on port 5433.\n"
    )
    hits, nothing, empty = say(harness, "/memory staging database port", "/memory zzqx", "/memory")
    assert "memory/servers.md#L" in hits
    assert "5433" in hits
    assert nothing.startswith("The memory has nothing about that.")
    assert empty.startswith("Say what to search for")


def test_status_says_where_we_are_and_compact_what_it_did(harness):
    say(harness, "Hello")
    status = say(harness, "/status")[0]
    assert harness.sessions.find("http", "ada").id in status
    assert "2 messages" in status
    assert "Waiting for an answer: 1 of at most 100 messages." in status
    assert say(harness, "/compact")[0].startswith(("Nothing was compacted", "Compacted"))


NOTE = """\
# Keys

- The spare key is under the mat.
- The car key hangs by the door.

## Bicycle

The bicycle lock opens with kestrel.
"""


def test_forgetting_shows_what_would_go_and_asks_first(harness):
    note = write_note(Path(harness.memory.workspace.root), "MEMORY.md", NOTE)
    shown = say(harness, "/forget spare key is under the mat")[0]
    assert "- The spare key is under the mat." in shown
    assert "/forget yes" in shown
    assert note.read_text() == NOTE, "nothing went yet"
    assert say(harness, "/forget no") == ["Nothing was forgotten."]
    assert say(harness, "/forget yes")[0].startswith("There is nothing to confirm")
    assert note.read_text() == NOTE


def bytes_below(harness: ResponderHarness) -> bytes:
    folders = (Path(harness.memory.config.home), Path(harness.memory.workspace.root))
    return b"".join(path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file())


def test_what_is_forgotten_leaves_the_note_and_every_other_file(harness):
    """Also the inbox, in which the command and the reply with the passage are."""
    note = write_note(Path(harness.memory.workspace.root), "MEMORY.md", NOTE)
    reply = say(harness, "/forget bicycle lock opens with kestrel", "/forget yes")[1]
    assert reply.startswith("Forgotten: 1 passage. Nothing of it is left in what you see.")
    assert note.read_text() == NOTE.replace("The bicycle lock opens with kestrel.\n", "")
    assert b"kestrel" not in bytes_below(harness)
    assert "kestrel" not in " ".join(
        hit.snippet for hit in harness.memory.search("bicycle lock kestrel", source="memory")
    )
    assert [message.inbound.text for message in harness.inbox().messages()] == ["", "/forget yes"]


def test_only_the_passages_that_are_named_by_number_go(harness):
    note = write_note(Path(harness.memory.workspace.root), "MEMORY.md", NOTE)
    shown = say(harness, "/forget key")[0]
    assert "2. MEMORY.md#L4\n- The car key" in shown
    forgotten = say(harness, "/forget 2")[0]
    assert forgotten.startswith("Forgotten: 1 passage. 1 more were not chosen")
    assert note.read_text() == NOTE.replace("- The car key hangs by the door.\n", "")


def test_a_passage_that_changed_since_is_left_alone(harness):
    note = write_note(Path(harness.memory.workspace.root), "MEMORY.md", NOTE)
    say(harness, "/forget bicycle lock opens with kestrel")
    note.write_text(NOTE.replace("kestrel", "0815"))
    assert say(harness, "/forget yes")[0].startswith("It has changed since then, and nothing was forgotten.")
    assert "0815" in note.read_text()


def test_the_running_agent_no_longer_tells_the_model_what_was_forgotten(tmp_path):
    requests = []
    harness = ResponderHarness(tmp_path, ScriptedChat(lambda request: requests.append(request) or "A reply."))
    say(harness, "My bicycle lock opens with kestrel, you know.", "/forget kestrel", "/forget yes", "And now?")
    assert "kestrel" in str(requests[0])
    assert "kestrel" not in str(requests[-1])
    harness.close()


def test_too_much_is_not_forgotten_in_a_chat(harness):
    write_note(Path(harness.memory.workspace.root), "MEMORY.md", "\n".join(f"- the thing {n}" for n in range(150)))
    assert "more exactly" in say(harness, "/forget the")[0]
    assert "too short" in say(harness, "/forget e")[0]


def test_only_what_can_be_removed_is_offered(tmp_path):
    """Passages in extra paths are named, not offered."""
    other = write_note(tmp_path / "journal", "lock.md", "The bicycle lock opens with kestrel.\n")
    setting = json.dumps({"agents": {"defaults": {"memory_search": {"extra_paths": [str(other.parent)]}}}})
    write_note(tmp_path / "home", "config.yaml", setting)
    harness = ResponderHarness(tmp_path, ScriptedChat(lambda request: "A reply."))
    (reply,) = say(harness, "/forget bicycle lock opens with kestrel")
    assert reply.startswith("No note and no conversation says that.")
    assert f"Edit or delete them yourself: {other}#L1" in reply
    note = write_note(Path(harness.memory.workspace.root), "MEMORY.md", NOTE)
    shown, forgotten = say(harness, "/forget bicycle lock opens with kestrel", "/forget yes")
    assert shown.startswith("This would go:\n\n1. MEMORY.md")
    assert "2. " not in shown
    assert f"These are not changed. Edit or delete them yourself: {other}#L1." in shown
    assert forgotten.startswith("Forgotten: 1 passage")
    assert "bicycle" not in note.read_text()
    assert other.read_text() == "The bicycle lock opens with kestrel.\n"
    harness.close()


async def test_a_command_among_other_messages_after_a_crash_is_still_one(harness):
    """Accepted messages are divided into runs again, in their order."""
    inbox = harness.inbox()
    for number, text in enumerate(["one", "/help", "two"]):
        inbox.receive(harness.key(), Inbound(f"m{number}", text))

    async with running_responder(harness):
        pass
    again = harness.inbox()
    replies = [again.find_run(again.find("http", f"m{number}")).reply for number in range(3)]
    assert replies == ["A reply.", HELP, "A reply."]

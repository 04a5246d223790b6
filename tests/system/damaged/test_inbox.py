"""One bad line in the inbox, a ledger or the batch book: the others count, the gateway starts, and nothing is lost."""

import asyncio
import datetime as dt
import json
import os
from pathlib import Path

import pytest

from kept import Memory, SessionStore
from kept.agent.events import Inbound
from kept.base.clock import SystemClock
from kept.errors import ConfigError
from kept.gateway.app import open_dispatcher
from kept.gateway.channels.gateway import Gateway
from kept.gateway.inbox import Inbox, message_status
from kept.sessions.session_key import SessionKey
from kept.storage.files.file_storage import FileStorage
from kept.testing import FakeEmbedder, ScriptedChat
from tests.support.damaged_commands import Commands
from tests.support.mutations import flipped_bits, wrong_fields
from tests.support.responders import open_inbox

KEY = SessionKey("main", "http", "default", "direct", "ada")


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """Thousands of writes that need not outlast a power cut."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def journal(home: Path) -> Path:
    return home / "agents" / "main" / "inbox.jsonl"


def opened(path: Path) -> Inbox:
    return open_inbox(path.parent)


def looked_at(path: Path) -> Inbox:
    return Inbox(FileStorage(str(path.parent)), clock=SystemClock())


def receive(inbox: Inbox, message_id: str):
    return inbox.receive(KEY, Inbound(message_id, "Hello", "Ada", inbox.clock.now(), {"chat": 7}))


def fill(journal: Path) -> None:
    """One message that waits and one that was answered."""
    inbox = opened(journal)
    inbox.change(inbox.begin([receive(inbox, "answered")], "s1"), parts=("Hi.",), push=False, entry_id=None)
    receive(inbox, "waiting")


def victim_lines(journal: Path) -> list[bytes]:
    """Return a record of every type, about one further message."""
    size = journal.stat().st_size
    inbox = opened(journal)
    run = inbox.begin([receive(inbox, "victim")], "s2")
    run = inbox.change(run, parts=("a", "b", "c"), push=True, entry_id="e", error="model_failed")
    for settled, unconfirmed in ((0, 0), (1, 0), (2, 1)):
        run = inbox.change(run, sending=True)
        run = inbox.change(run, sending=False, settled=settled, unconfirmed=unconfirmed)
    inbox.change(run, attempts=2)
    inbox.change(run, cancelled=True)
    whole = journal.read_bytes()
    journal.write_bytes(whole[:size])
    return whole[size:].splitlines()


def bystanders(inbox: Inbox) -> dict[str, str]:
    messages = {name: inbox.find("http", name) for name in ("answered", "waiting")}
    return {name: message_status(inbox.find_run(message)) for name, message in messages.items() if message}


def test_a_wrong_line_anywhere_changes_nothing_for_other_messages(journal):
    fill(journal)
    good = journal.read_bytes()
    lines = victim_lines(journal)
    for index, line in enumerate(lines):
        for wrong in (*wrong_fields(json.loads(line)), *flipped_bits(line, every=13)):
            mixed = [*lines[:index], wrong, *lines[index + 1 :]]
            journal.write_bytes(good + b"\n".join(mixed) + b"\n")
            inbox = looked_at(journal)
            assert bystanders(inbox) == {"answered": "answered", "waiting": "waiting"}, wrong
            for run in inbox.unfinished():
                assert inbox.messages_of(run)


def test_a_flipped_bit_in_the_first_line_is_no_later_version(journal):
    fill(journal)
    head, _, rest = journal.read_bytes().partition(b"\n")
    later = 0
    for wrong in flipped_bits(head):
        journal.write_bytes(wrong + b"\n" + rest)
        try:
            assert bystanders(looked_at(journal)) == {"answered": "answered", "waiting": "waiting"}
        except ConfigError:
            later += 1
    assert later <= 3, "only another digit is another version"


def test_a_flipped_bit_where_a_rewritten_log_says_its_position_costs_nothing_else(journal):
    fill(journal)
    journal.write_bytes(journal.read_bytes() + b"x\n")
    opened(journal)
    head, _, rest = journal.read_bytes().partition(b"\n")
    assert head.startswith(b'{"rewritten"')
    for wrong in flipped_bits(head):
        journal.write_bytes(wrong + b"\n" + rest)
        assert bystanders(looked_at(journal)) == {"answered": "answered", "waiting": "waiting"}, wrong
    opened(journal)
    assert bystanders(looked_at(journal)) == {"answered": "answered", "waiting": "waiting"}


def test_the_gateway_starts_sets_aside_what_is_damaged_and_answers_the_rest(journal, home, workspace):
    fill(journal)
    lines = victim_lines(journal)
    wrong = [bad for line in lines for bad in wrong_fields(json.loads(line))]
    journal.write_bytes(journal.read_bytes() + b"\n".join(wrong) + b"\n")
    commands = Commands(home, workspace)
    assert "damaged lines" in commands.run("status")
    status = json.loads(commands.run("status", "--json"))
    assert status["inbox"]["waiting"] >= 1
    checks = [check for check in json.loads(commands.run("doctor", "--json"))["checks"] if check["name"] == "records"]
    assert "inbox.jsonl, line " in checks[0]["detail"]
    asyncio.run(answer_everything(home, workspace))
    inbox = opened(journal)
    assert message_status(inbox.find_run(inbox.find("http", "waiting"))) == "answered"
    assert inbox.faults == []
    aside = Path(f"{journal}.damaged").read_bytes().splitlines()
    assert len(aside) > len(wrong) / 2
    assert set(aside) <= set(wrong)
    (check,) = [check for check in json.loads(commands.run("doctor", "--json"))["checks"] if check["name"] == "records"]
    assert check["ok"]
    assert "inbox.jsonl.damaged" in check["detail"]


async def answer_everything(home: Path, workspace: Path) -> None:
    settings = {"gateway.http.port": 0}
    memory = Memory.open(workspace, home=home, embedder=FakeEmbedder(), settings=settings)
    with memory, SessionStore(memory.config) as sessions:
        model = ScriptedChat(lambda request: "Yes.")
        gateway = Gateway([open_dispatcher(memory, sessions, model)], report=lambda line: None)
        gateway.stop()  # it finishes what was accepted, and ends
        await gateway.run()


def test_a_message_with_an_absurd_time_is_accepted_and_still_there_after_a_restart(journal):
    inbox = opened(journal)
    for number, year in enumerate((1, 1066, 9999)):
        when = dt.datetime(year, 6, 1, tzinfo=dt.UTC)
        inbox.receive(KEY, Inbound(f"m{number}", "Hello \ud83d", "\udcff", when, {"a": 10**30}))
    again = opened(journal)
    assert [message.id for message in again.waiting()] == ["m0", "m1", "m2"]
    assert again.faults == []

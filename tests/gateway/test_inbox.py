"""Accepted messages, and what became of them, are on disk."""

import errno
from pathlib import Path

import pytest

from kept.agent.events import Inbound
from kept.base.clock import SystemClock
from kept.errors import ConfigError, LeaseLost, WriteFailed
from kept.gateway.inbox import Inbox, message_status
from kept.sessions.session_key import SessionKey
from kept.storage.files.file_storage import FileStorage
from tests.support.files import largest_file
from tests.support.responders import open_inbox

KEY = SessionKey("main", "telegram", "default", "direct", "7")


def opened(path: Path) -> Inbox:
    return open_inbox(path.parent)


def looked_at(path: Path) -> Inbox:
    return Inbox(FileStorage(str(path.parent)), clock=SystemClock())


def state(inbox: Inbox) -> dict[str, tuple]:
    """Everything that matters about every message."""
    runs = [(message, inbox.find_run(message)) for message in inbox.messages()]
    return {message.id: (message.inbound, message_status(run), run) for message, run in runs}


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "agents" / "main" / "inbox.jsonl"


@pytest.fixture
def hasty(monkeypatch):
    """Thousands of writes that need not outlast a power cut."""
    monkeypatch.setattr("kept.base.durable.os.fsync", lambda handle: None)


def fill(inbox: Inbox) -> None:
    """One message of every state there is."""

    def take(number: int, text: str = "Hello"):
        return inbox.receive(KEY, Inbound(f"m{number}", text, "Ada", inbox.clock.now(), {"chat": 7}))

    done = inbox.change(inbox.begin([take(1), take(2)], "s1"), parts=("one", "two"), push=True, entry_id="e1")
    done = inbox.change(inbox.change(done, sending=True), sending=False, settled=1)
    inbox.change(inbox.change(done, sending=True), sending=False, settled=2, unconfirmed=1)
    inbox.change(inbox.begin([take(3)], "s1"), parts=("fetched",), push=False, entry_id=None)
    inbox.change(inbox.begin([take(4)], "s1"), cancelled=True)
    halfway = inbox.change(
        inbox.begin([take(5)], "s1"), parts=("a", "b"), push=True, entry_id=None, error="model_failed"
    )
    inbox.change(inbox.change(halfway, sending=True), sending=False)
    inbox.change(inbox.change(inbox.begin([take(6)], "s2"), parts=("x",), push=True, entry_id=None), sending=True)
    inbox.change(inbox.begin([take(7)], "s1"), attempts=2)
    take(8, "half a pair: \ud83d")


def test_everything_is_as_it_was_when_it_is_opened_again(journal):
    inbox = opened(journal)
    fill(inbox)
    again = opened(journal)
    assert state(again) == state(inbox)
    assert [message.id for message in again.waiting()] == ["m8"]
    assert [run.message_ids for run in again.unfinished()] == [("m5",), ("m6",), ("m7",)]
    assert [run.message_ids for run in again.unconfirmed_runs()] == [("m1", "m2")]


@pytest.mark.slow
def test_a_kill_at_any_byte_loses_nothing_that_was_promised(journal, hasty):
    inbox = opened(journal)
    fill(inbox)
    whole = journal.read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == 10]
    before = None
    for size in range(len(whole) + 1):
        journal.write_bytes(whole[:size])
        reopened = state(opened(journal))
        if size in ends or size + 1 in ends or before is None:  # all but its line break is a whole line
            before = reopened
        assert reopened == before, f"cut at byte {size}"
        assert journal.read_bytes() == whole[: max((end for end in ends if end <= size + 1), default=0)]


def test_old_turns_are_forgotten_and_unfinished_ones_are_not(journal, hasty, monkeypatch):
    monkeypatch.setattr("kept.gateway.inbox.MAX_FINISHED_RUNS", 3)
    inbox = opened(journal)
    unfinished = inbox.begin([inbox.receive(KEY, Inbound("open", "?"))], "s1")
    for number in range(600):
        run = inbox.begin([inbox.receive(KEY, Inbound(f"m{number}", "Hello"))], "s1")
        inbox.change(run, parts=("Hi",), push=False, entry_id=None)
    again = opened(journal)
    assert list(state(again)) == ["open", "m597", "m598", "m599"]
    assert again.unfinished() == [unfinished]
    assert len(journal.read_bytes().splitlines()) == 2 + 2 + 3 * 2


def test_a_journal_of_a_later_version_is_left_alone(journal):
    journal.parent.mkdir(parents=True)
    journal.write_text('{"type":"inbox","version":3}\n')
    with pytest.raises(ConfigError, match="later version"):
        opened(journal)
    assert journal.read_text() == '{"type":"inbox","version":3}\n'


def no_space(*names: object, **folders: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_old_messages_that_cannot_be_cleared_away_fail_no_step(journal, hasty, caplog, monkeypatch):
    monkeypatch.setattr("kept.gateway.inbox.MAX_FINISHED_RUNS", 0)
    monkeypatch.setattr("kept.gateway.inbox.REWRITE_AFTER_RUNS", 0)
    inbox = opened(journal)
    run = inbox.begin([inbox.receive(KEY, Inbound("m1", "Hello"))], "s1")
    with monkeypatch.context() as full:
        full.setattr("os.replace", no_space)
        assert inbox.change(run, parts=("Yes.",), push=False, entry_id=None).parts == ("Yes.",)
    assert "old messages stay in the inbox" in caplog.text
    assert message_status(inbox.find_run(inbox.find("telegram", "m1"))) == "answered"
    assert state(looked_at(journal)) == state(inbox)


def test_looking_from_outside_changes_nothing(journal):
    fill(opened(journal))
    with journal.open("ab") as file:
        file.write(b'{"type":"strange"}\n{"type":"message","id":"m9","cha')
    before = journal.read_bytes()
    looked = looked_at(journal)
    assert [message.id for message in looked.waiting()] == ["m8"]
    assert journal.read_bytes() == before
    assert {file.name for file in journal.parent.iterdir()} == {".kept", journal.name}


def test_a_gateway_that_was_frozen_cannot_write_beside_its_successor(journal):
    frozen = opened(journal)
    frozen.receive(KEY, Inbound("m1", "Hello"))
    successor = opened(journal)
    with pytest.raises(LeaseLost):
        frozen.receive(KEY, Inbound("m2", "Hello"))
    assert successor.receive(KEY, Inbound("m3", "Hello")).id == "m3"
    assert list(state(looked_at(journal))) == ["m1", "m3"]


def test_what_cannot_be_written_is_not_accepted(journal):
    inbox = opened(journal)
    inbox.receive(KEY, Inbound("m1", "Hello"))
    with largest_file(journal.stat().st_size + 10), pytest.raises(WriteFailed):
        inbox.receive(KEY, Inbound("m2", "Hello"))
    assert inbox.find("telegram", "m2") is None
    assert inbox.receive(KEY, Inbound("m2", "Hello")).id == "m2"
    assert list(state(opened(journal))) == ["m1", "m2"]

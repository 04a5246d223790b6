"""A conversation of a million messages: counted in bytes read, since time is nobody's promise on a busy machine."""

import json
import os

import pytest
from click.testing import CliRunner

from kept.cli.root import cli
from kept.sessions.entries import Entry, Message, format_entry
from tests.support.read_counter import ReadCounter
from tests.support.session_strategies import NOW, open_sessions, path_of

pytestmark = pytest.mark.slow

MESSAGES = 1_000_000


def fill(path: str, count: int) -> None:
    """As if so many messages had been appended: the same line with another number in the same place."""
    pattern = format_entry(Entry("e0000000", None, NOW, Message.of("user", "Message 0000000 about the backups")))
    with open(path, "ab") as file:
        for start in range(0, count, 10_000):
            file.write(b"".join(pattern.replace(b"0000000", b"%07d" % at) for at in range(start, start + 10_000)))


def test_a_million_messages_are_listed_tailed_and_added_to_without_reading_them(tmp_path, monkeypatch):
    with open_sessions(tmp_path) as store:
        session = store.get_or_create("telegram", "1")
        fill(path_of(tmp_path / "home", session), MESSAGES)
        assert os.path.getsize(path_of(tmp_path / "home", session)) > 100_000_000
        assert store.recent()[0].messages == MESSAGES
    counter = ReadCounter(monkeypatch)

    with open_sessions(tmp_path) as store:
        (record,) = store.recent()
        assert (record.messages, counter.take()) == (MESSAGES, 0)
        tail = store.tail(session.id, 20)
        assert [line.number for line in tail] == list(range(MESSAGES - 18, MESSAGES + 2))
        assert counter.take() < 100_000

    with open_sessions(tmp_path) as store:
        for number in range(10):
            store.append(session.id, Message.of("user", f"One more {number}"))
        assert counter.take() < 10 * 100_000  # each looks for its parent
        assert store.get(session.id).messages == MESSAGES + 10
        assert store.get_or_create("telegram", "1").id == session.id
        assert counter.take() == 0

    shown = CliRunner().invoke(cli, ["--home", str(tmp_path / "home"), "sessions", "show", session.id, "--tail", "20"])
    assert shown.exit_code == 0
    assert "Message 0999999 about the backups" in shown.stdout
    assert "One more 9" in shown.stdout
    assert counter.take() < 1_000_000

    listed = CliRunner().invoke(cli, ["--home", str(tmp_path / "home"), "sessions", "list", "--json"])
    assert json.loads(listed.stdout)["sessions"][0]["messageCount"] == MESSAGES + 10
    assert counter.take() == 0
    path_of(tmp_path / "home", session).unlink()

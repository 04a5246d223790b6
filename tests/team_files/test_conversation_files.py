"""Conversations of a team in PostgreSQL: each machine sends its own, and has copies of those of others."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kept.sessions.entries import Message
from kept.sessions.store import SessionStore
from tests.support.file_hosts import FileHost, rows_of, settle
from tests.support.teams import Team

SECRET = "90210-4711-X"


@pytest.fixture
def hosts(tmp_path: Path, team: Team) -> tuple[FileHost, FileHost]:
    ada, bo = (FileHost(tmp_path, team, name, **{"sync.database.transcripts": True}) for name in ("ada", "bo"))
    return ada, bo


def say(host: FileHost, *texts: str, talk: str = "5054") -> str:
    with SessionStore(host.config) as sessions:
        record = sessions.get_or_create("telegram", talk)
        for text in texts:
            sessions.append(record.id, Message.of("user", text))
        return record.id


def transcripts(host: FileHost) -> dict[str, bytes]:
    """Return this machine's transcripts and its copies, by the machine that had them."""
    folder = host.home / "agents/main/sessions"
    files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.jsonl")}
    return {name if "/" in name else f"{host.name}/{name}": data for name, data in files.items()}


def test_a_machine_finds_what_was_said_on_another(hosts, team):
    ada, bo = hosts
    say(ada, "The lighthouse is at Skerry.")
    ada.run()
    with bo.memory() as memory:
        hits = memory.search("lighthouse").hits
        assert hits[0].path.startswith("sessions/ada/")
    say(ada, "And the harbour is at Wick.")
    say(bo, "Bo says hello to everybody.", talk="77")
    settle([ada, bo])
    rows = {path: data for path, data in rows_of(team).items() if path.startswith(("ada/", "bo/"))}
    assert transcripts(ada) == transcripts(bo) == rows


def test_only_what_is_new_is_sent(hosts, team):
    ada, _ = hosts
    say(ada, "One thing.")
    assert ada.run().conversations_sent == 1
    assert ada.run().conversations_sent == 0
    say(ada, "Another thing.")
    assert ada.run().conversations_sent == 1
    with team.database.reading() as connection:
        starts = connection.execute("SELECT start FROM file_pieces WHERE path LIKE 'ada/%' ORDER BY start").fetchall()
    assert len(starts) == 2
    assert starts[1][0] > 0


def test_an_empty_home_gets_its_own_conversations_back(hosts):
    ada, bo = hosts
    session = say(ada, "The lighthouse is at Skerry.")
    say(bo, "Bo says hello to everybody.", talk="77")
    settle([ada, bo])
    before = transcripts(ada)
    shutil.rmtree(ada.home)
    ada.home.mkdir()
    ada.run()
    assert transcripts(ada) == before
    assert say(ada, "It goes on after that.") == session
    settle([ada, bo])
    assert transcripts(ada) == transcripts(bo)


def test_a_deleted_conversation_leaves_the_other_machines(hosts, team):
    ada, bo = hosts
    session = say(ada, "Nobody should keep this.")
    settle([ada, bo])
    with SessionStore(ada.config) as sessions:
        sessions.delete(session, purge=True)
    settle([ada, bo])
    assert transcripts(bo) == {}
    assert not [data for data in rows_of(team).values() if b"Nobody should keep this." in data]


def test_a_text_forgotten_on_another_machine_leaves_the_database_and_its_own(hosts, team):
    ada, bo = hosts
    say(ada, f"The safe opens with {SECRET}.", "Lunch is at noon.")
    settle([ada, bo])
    with bo.memory() as memory:
        receipt = memory.forgetting.apply(memory.forgetting.plan(SECRET))
    assert receipt.is_finished
    assert not [path for path, data in rows_of(team).items() if SECRET.encode() in data]
    say(ada, "Dinner is at eight.")
    settle([ada, bo])
    assert transcripts(ada) == transcripts(bo)
    (text,) = transcripts(ada).values()
    assert SECRET.encode() not in text
    assert b"noon" in text
    assert b"eight" in text
    assert not [path for path, data in rows_of(team).items() if SECRET.encode() in data]


def test_hostile_names_of_conversations_are_not_taken(hosts, team, tmp_path):
    ada, _ = hosts
    ada.run()
    with team.database.writing() as connection:
        (workspace,) = connection.execute("SELECT id FROM file_workspaces WHERE name LIKE 'conversations%'").fetchone()
        for number, path in enumerate(("../x.jsonl", "bo/../../../x.jsonl", "/etc/x.jsonl", "bo/x.txt", "x.jsonl")):
            connection.execute(
                "INSERT INTO grown_files VALUES (%s, %s, 1, 3, %s, 'evil')", [workspace, path, number + 1]
            )
            connection.execute("INSERT INTO file_pieces VALUES (%s, %s, 0, '{}\n')", [workspace, path])
        connection.execute("UPDATE file_workspaces SET seq = 10 WHERE id = %s", [workspace])
    report = ada.run()
    assert len(report.problems) == 5
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith("x.")]
    assert not os.path.exists("/etc/x.jsonl")

"""Deleted sessions stay deleted, and can be restored, whatever happens in between."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kept.errors import SessionDeleted, SessionExists, SessionNotFound
from kept.sessions.entries import Message, SessionStart
from kept.sessions.store import SessionStore
from kept.storage.files.steps import Steps
from tests.support.files import write_file
from tests.support.foreign_transcripts import bring_in, lines, pi_header, pi_user
from tests.support.killing import die, is_killed
from tests.support.session_strategies import path_of

SECRET_TEXT = "The heron nests behind the mill"


@pytest.fixture
def source(tmp_path):
    """A conversation of another program."""
    return write_file(tmp_path / "elsewhere/walk-1.jsonl", lines(pi_header(), pi_user("a1", None, SECRET_TEXT)))


def outcomes(home, source):
    return [session.outcome for session in bring_in(home, "pi", source).sessions]


@pytest.mark.parametrize("purge", [False, True])
def test_an_import_leaves_out_what_was_deleted_until_it_is_restored(tmp_path, home, source, purge):
    assert outcomes(home, source) == ["imported"]
    with SessionStore.open(home=home) as store:
        store.delete("walk-1", purge=purge)
    assert outcomes(home, source) == ["deleted"]
    with open(source, "a") as file:
        file.write(json.dumps(pi_user("a2", "a1", "It is still there", 3)) + "\n")
    assert outcomes(home, source) == ["deleted"], "also when it has grown"
    (trace,) = (home / "agents/main/sessions").iterdir()
    assert (b"heron" in trace.read_bytes()) != purge
    with SessionStore.open(home=home) as store:
        deleted, record = store.restore("walk")
        assert deleted.id == "walk-1"
        assert (record is None) == purge
    assert outcomes(home, source) == ["imported" if purge else "updated"]
    with SessionStore.open(home=home) as store:
        assert store.get("walk-1").messages == 2
        assert store.deleted() == []


def test_adopting_checks_whether_it_was_deleted(tmp_path, home, source):
    outcomes(home, source)
    with SessionStore.open(home=home) as store:
        record = store.get("walk-1")
        entries = store.load("walk-1").entries[1:]
        store.delete("walk-1", purge=True)
        start = SessionStart(record.key)
        with pytest.raises(SessionDeleted):
            store.adopt(start, entries, session_id="walk-1", created=record.created)
        assert store.recent() == []
        with pytest.raises(SessionNotFound):
            store.delete("walk-1")
        with pytest.raises(SessionNotFound):
            store.restore("nowhere")


def test_a_transcript_that_a_person_renamed_back_is_a_session_again(tmp_path, home, source):
    outcomes(home, source)
    with SessionStore.open(home=home) as store:
        deleted_path = str(home / "agents/main" / store.delete("walk-1"))
        os.rename(deleted_path, deleted_path.partition(".deleted-")[0])
        assert store.get("walk-1").messages == 1
        assert store.deleted() == []
    assert outcomes(home, source) == ["unchanged"]
    with SessionStore.open(home=home) as store:
        with pytest.raises(SessionNotFound):
            store.append("walk", Message.of("user", "x"))
        store.delete("walk-1")
        again = store.get_or_create("telegram", "1")
        os.rename(path_of(home, again), f"{path_of(home, again)}.deleted-20260101T000000")
        assert {session.id for session in store.deleted()} == {"walk-1", again.id}


def test_nothing_is_restored_over_a_session_that_is_there(tmp_path, home, source):
    outcomes(home, source)
    with SessionStore.open(home=home) as store:
        path = path_of(home, store.get("walk-1"))
        deleted_path = home / "agents/main" / store.delete("walk-1")
        with open(deleted_path) as file:
            write_file(Path(path), file.read())
        with pytest.raises(SessionExists):
            store.restore("walk-1")
        assert os.path.exists(deleted_path)


def run_killed(home, at, action):
    def act():
        setattr(Steps, at, die)
        with SessionStore.open(home=home) as sessions:
            if action == "restore":
                sessions.restore("walk-1")
            else:
                sessions.delete("walk-1", purge=action == "purge")

    assert is_killed(act)


@pytest.mark.parametrize(
    ("at", "action", "is_deleted"),
    [("_move", "delete", False), ("_do", "purge", True), ("_remove", "purge", True), ("_move", "restore", True)],
)
def test_killed_between_two_steps_a_session_is_either_there_or_deleted(tmp_path, home, source, at, action, is_deleted):
    outcomes(home, source)
    if action == "restore":
        with SessionStore.open(home=home) as store:
            store.delete("walk-1")
    run_killed(home, at, action)
    with SessionStore.open(home=home) as store:
        assert [record.id for record in store.recent()] == ([] if is_deleted else ["walk-1"])
        assert [session.id for session in store.deleted()] == (["walk-1"] if is_deleted else [])
    assert outcomes(home, source) == (["deleted"] if is_deleted else ["unchanged"])
    with SessionStore.open(home=home) as store:
        store.delete("walk-1", purge=True)
        assert [os.path.getsize(entry.path) for entry in os.scandir(store.config.paths.sessions)] == [0]
    assert outcomes(home, source) == ["deleted"]


def test_two_processes_that_delete_and_import_agree(tmp_path, home, source):
    """Whatever comes first, the session is deleted when both have ended."""
    outcomes(home, source)
    script = write_file(
        tmp_path / "importing.py",
        "import sys\n"
        "from kept.sessions.importers.import_run import import_sessions\n"
        "from kept.sessions.store import SessionStore\n"
        "with SessionStore.open(home=sys.argv[1]) as sessions:\n"
        "    for _ in range(20):\n"
        "        report = import_sessions(sessions, 'pi', sys.argv[2])\n"
        "        assert not report.count('failed'), report\n",
    )
    with open(source, "a") as file:
        file.write(json.dumps(pi_user("a2", "a1", "It is still there", 3)) + "\n")
    importing = subprocess.Popen([sys.executable, script, home, source])
    with SessionStore.open(home=home) as store:
        store.delete("walk-1", purge=True)
        assert importing.wait() == 0
        assert store.recent() == []
        assert [session.id for session in store.deleted()] == ["walk-1"]

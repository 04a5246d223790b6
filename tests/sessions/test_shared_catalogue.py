"""The list of a team's sessions: every machine sees those of all, and a conversation never waits for the database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kept.errors import SessionNotFound
from kept.postgres.open_database import close_databases
from kept.sessions.entries import Message
from kept.sessions.host_transcripts import HostTranscripts
from kept.sessions.store import SessionStore
from tests.support.own_server import OwnServer
from tests.support.teams import find_traces
from tests.support.waiting import wait_until

HERON = "The heron nests behind the mill"


def open_sessions(tmp_path: Path, host: str, **options) -> SessionStore:
    return SessionStore.open(home=tmp_path / host, settings={"sync.git.host": host}, create=True, **options)


def say(tmp_path: Path, host: str, text: str = HERON, *, user: str = "5054") -> str:
    with open_sessions(tmp_path, host) as sessions:
        session = sessions.get_or_create("telegram", user)
        sessions.append(session.id, Message.of("user", text))
        return session.id


def rows(team) -> list[tuple]:
    with team.database.reading() as connection:
        return connection.execute("SELECT host, session_id, is_deleted FROM session_records ORDER BY host").fetchall()


def listed(tmp_path: Path, host: str) -> list[tuple[str, str, int]]:
    with open_sessions(tmp_path, host) as sessions:
        return [(record.host, record.id, record.messages) for record in sessions.recent_everywhere()]


def test_every_machine_lists_the_sessions_of_all(team, tmp_path):
    desk, mill = say(tmp_path, "desk"), say(tmp_path, "mill", "The plum tree")
    assert listed(tmp_path, "desk") == [("mill", mill, 1), ("", desk, 1)]
    assert listed(tmp_path, "mill") == [("", mill, 1), ("desk", desk, 1)]
    say(tmp_path, "desk", "Again")
    assert listed(tmp_path, "mill")[0] == ("desk", desk, 2)
    with open_sessions(tmp_path, "mill") as sessions:
        assert [record.title for record in sessions.recent_everywhere(limit=1)] == [HERON]
        assert sessions.recent_everywhere(channel="discord") == []
        assert [record.id for record in sessions.recent()] == [mill], "what is only elsewhere cannot be read here"


def test_the_command_shows_the_machine_and_says_where_a_transcript_is(team, tmp_path, kept):
    desk, mill = say(tmp_path, "desk"), say(tmp_path, "mill", "The plum tree")
    home = ("--home", str(tmp_path / "mill"), "--set", "sync.git.host=mill")
    records = {record["sessionId"]: record for record in kept(*home, "sessions", "list", "--json").json["sessions"]}
    assert {name: record["host"] for name, record in records.items()} == {desk: "desk", mill: "mill"}
    assert records[desk]["transcriptPath"] is None
    lines = kept(*home, "sessions", "list").out.splitlines()
    assert "Host" in lines[0]
    assert [line.split()[4] for line in lines[1:]] == ["mill", "desk"]
    for reference in (desk, desk[:8]):
        done = kept(*home, "sessions", "show", reference)
        assert done.code == 3
        assert f"Session {desk} is on the machine desk, and its transcript is not here." in done.err
        assert done.err.count("\n") == 1
    assert kept(*home, "sessions", "show", "discord:1").code == 3
    assert kept(*home, "sessions", "show", "%").code == 3


def test_a_conversation_that_is_only_elsewhere_is_found_by_its_key(team, tmp_path):
    desk = say(tmp_path, "desk")
    with open_sessions(tmp_path, "mill") as sessions, pytest.raises(SessionNotFound, match=f"{desk} is on the machine"):
        sessions.get("telegram:5054")


def test_a_copy_is_listed_once(team, tmp_path):
    desk = say(tmp_path, "desk")
    with open_sessions(tmp_path, "desk") as sessions:
        path = Path(sessions.get(desk).transcript_path)
    with open_sessions(tmp_path, "mill") as sessions:
        HostTranscripts(sessions.config.paths, "mill").place("desk", path.name, path.read_bytes())
        assert [(record.host, record.id) for record in sessions.recent_everywhere()] == [("desk", desk)]


def test_deleting_restoring_and_purging_reach_the_table(team, tmp_path):
    desk = say(tmp_path, "desk")
    with open_sessions(tmp_path, "desk") as sessions:
        sessions.delete(desk)
    assert rows(team) == [("desk", desk, True)]
    assert listed(tmp_path, "mill") == []
    with team.database.reading() as connection:
        assert "heron" not in str(connection.execute("SELECT * FROM session_records").fetchall())
    with (
        open_sessions(tmp_path, "mill") as sessions,
        pytest.raises(SessionNotFound, match="was deleted on the machine"),
    ):
        sessions.get(desk)
    with open_sessions(tmp_path, "desk") as sessions:
        sessions.restore(desk)
    assert listed(tmp_path, "mill") == [("desk", desk, 1)]


def test_a_transcript_that_a_person_removed_leaves_the_table(team, tmp_path):
    desk = say(tmp_path, "desk")
    with open_sessions(tmp_path, "desk") as sessions:
        Path(sessions.get(desk).transcript_path).unlink()
        sessions.recent_everywhere()
    assert rows(team) == []


def test_what_is_forgotten_leaves_the_table_and_its_files(team, tmp_path, kept):
    say(tmp_path, "desk")
    home = ("--home", str(tmp_path / "desk"), "--set", "sync.git.host=desk")
    assert kept(*home, "forget", "heron nests", "--yes").code == 0
    assert find_traces(team, "heron") == []
    assert [record[2] for record in listed(tmp_path, "mill")] == [1]


def test_forgetting_on_one_machine_takes_the_words_out_of_the_rows_of_others(team, tmp_path, kept):
    say(tmp_path, "desk")
    mill = say(tmp_path, "mill", "I saw that the heron nests there")
    home = ("--home", str(tmp_path / "mill"), "--set", "sync.git.host=mill")
    assert kept(*home, "forget", "heron nests", "--yes").code == 0
    assert find_traces(team, "heron") == []
    assert kept(*home, "forget", "--session", mill, "--yes").code == 0
    assert [row[1] for row in rows(team) if not row[2]] != [mill]


def test_removing_an_agent_removes_its_rows(team, tmp_path, kept):
    home = ("--home", str(tmp_path / "desk"))
    assert kept(*home, "agents", "add", "work").code == 0
    with open_sessions(tmp_path, "desk", agent="work") as sessions:
        sessions.append(sessions.get_or_create("terminal", "me").id, Message.of("user", HERON))
    say(tmp_path, "desk")
    assert len(rows(team)) == 2
    done = kept(*home, "agents", "remove", "work", "--yes")
    assert done.code == 0, done.err
    assert len(rows(team)) == 1


def test_rows_are_rebuilt_after_the_table_was_emptied(team, tmp_path):
    desk = say(tmp_path, "desk")
    with team.database.writing() as connection:
        connection.execute("TRUNCATE session_records")
    assert listed(tmp_path, "desk") == [("", desk, 1)]
    assert rows(team) == [("desk", desk, False)]


def test_a_row_that_cannot_be_read_is_left_out(team, tmp_path):
    desk = say(tmp_path, "desk")
    with team.database.writing() as connection:
        for number, record in enumerate(
            ("{}", "[]", "nonsense", '{"file": 1, "state": 7}', '{"file":"x","created_ms":1e99}')
        ):
            connection.execute(
                "INSERT INTO session_records VALUES ('main', 'evil', %s, 'evil', 'x', 'x', 0, '', false, %s)",
                [str(number), record],
            )
    assert ("desk", desk, 1) in listed(tmp_path, "mill")


def test_two_homes_of_one_name_keep_their_rows_apart(team, tmp_path):
    first = say(tmp_path / "a", "desk")
    second = say(tmp_path / "b", "desk")
    assert {record[1] for record in listed(tmp_path / "a", "desk")} == {first, second}
    assert {record[1] for record in listed(tmp_path / "b", "desk")} == {first, second}
    assert len(rows(team)) == 2


def test_a_host_that_gets_another_name_is_listed_under_it(team, tmp_path):
    desk = say(tmp_path, "desk")
    with SessionStore.open(home=tmp_path / "desk", settings={"sync.git.host": "tower"}) as sessions:
        sessions.recent_everywhere()
    assert rows(team) == [("tower", desk, False)]


@pytest.fixture(scope="module")
def own_server():
    server = OwnServer()
    yield server
    server.close()


def test_during_an_outage_conversations_go_on_and_the_table_catches_up(own_server, environment, monkeypatch, tmp_path):
    own_server.start()
    for name, value in own_server.environment.items():
        monkeypatch.setenv(name, value)
    desk = say(tmp_path, "desk")
    with open_sessions(tmp_path, "desk") as sessions:
        own_server.stop()
        for number in range(5):
            sessions.append(desk, Message.of("user", f"Message {number}"))
        assert [record.messages for record in sessions.recent_everywhere()] == [6]
        assert any("cannot be listed" in problem.reason for problem in sessions.take_problems())
        with pytest.raises(SessionNotFound, match="There is no session"):
            sessions.get("nowhere")
        own_server.start()
        sessions.append(desk, Message.of("user", "Back"))
        wait_until(lambda: published(tmp_path, desk) == 7, "the row of the session")
    close_databases()
    own_server.stop()


def published(tmp_path: Path, session_id: str) -> int:
    with open_sessions(tmp_path, "mill") as sessions:
        records = [record for record in sessions.recent_everywhere() if record.id == session_id]
    return records[0].messages if records else 0


@pytest.mark.kills
def test_a_machine_that_is_killed_before_it_wrote_its_row_does_so_next_time(team, tmp_path, environment):
    program = textwrap.dedent(
        f"""
        import os, signal
        from kept.sessions.entries import Message
        from kept.sessions.store import SessionStore
        sessions = SessionStore.open(home={str(tmp_path / "desk")!r}, settings={{"sync.git.host": "desk"}}, create=True)
        session = sessions.get_or_create("telegram", "5054")
        sessions.append(session.id, Message.of("user", "Said before the end"))
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, **environment})
    assert done.returncode == -signal.SIGKILL
    assert rows(team) == []
    [(_, session_id, messages)] = listed(tmp_path, "desk")
    assert messages == 1
    assert rows(team) == [("desk", session_id, False)]
    assert json.dumps(listed(tmp_path, "mill")) == json.dumps([("desk", session_id, 1)])

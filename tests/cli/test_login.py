"""`kept login`: commands work on the memory of a server, and nothing of it is kept here."""

import json
import os
import stat
import subprocess

import pytest

from kept.config import load_config
from kept.sessions.entries import Message
from kept.sessions.store import SessionStore
from tests.support.commands import KEPT
from tests.support.files import write_file
from tests.support.foreign_transcripts import cc_user, lines, pi_header, pi_user
from tests.support.mcp_client import StdioClient
from tests.support.serve_process import ServeProcess, create_token


@pytest.fixture
def served(tmp_path):
    place = tmp_path / "server"
    write_file(place / "workspace/MEMORY.md", "# Memory\n\n- Staging moved to port 5433.\n")
    token = create_token(place / "home", "laptop", "admin")
    server = ServeProcess(place)
    yield server, place, token
    server.stop()


@pytest.fixture
def laptop(served, tmp_path):
    """Run commands in a home that is logged in."""
    server, _, token = served
    home = tmp_path / "laptop"

    def run(*arguments, text="", code=0):
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "KEPT_HOME": str(home / ".kept")}
        done = subprocess.run([KEPT, *arguments], input=text, capture_output=True, text=True, env=env, check=False)
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return done.stdout + done.stderr

    assert f"Logged in to {server.url} as laptop (admin), agent main." in run("login", server.url, text=f"{token}\n")
    return run


def test_commands_work_on_the_server_and_keep_nothing_here(laptop, served, tmp_path):
    _, place, token = served
    assert "5433" in laptop("search", "which port is staging on?")
    assert "Kept in MEMORY.md#L4" in laptop("add", "The parrot is called Kiwi.", "--to", "memory")
    assert "Kiwi" in (place / "workspace/MEMORY.md").read_text()
    assert "Kiwi" in laptop("get", "MEMORY.md")
    assert "MEMORY.md" in laptop("list")
    assert "laptop, HTTP API" in laptop("history")
    assert "Took back 1 change" in laptop("undo", "--yes")
    assert "Nothing waits" in laptop("review")
    assert "5433" in laptop("forget", "5433", "--dry-run")
    assert "Forgotten" in laptop("forget", "5433", "--yes")
    assert "No sessions." in laptop("sessions", "list")
    assert json.loads(laptop("status", "--json"))["agent"] == "main"
    home = tmp_path / "laptop/.kept"
    assert {path.name for path in home.rglob("*") if path.is_file()} <= {"login.json", "lock"}
    assert stat.S_IMODE((home / "login.json").stat().st_mode) == 0o600
    assert token in (home / "login.json").read_text()


def test_conversations_are_those_of_the_server(laptop, served):
    _, place, _ = served
    with SessionStore(load_config(home=str(place / "home"), workspace=str(place / "workspace")).config) as sessions:
        record = sessions.get_or_create("cli", "ada")
        sessions.append(record.id, Message.of("user", "Where is the staging database?"))
    assert "staging database" in laptop("sessions", "show", record.id[:8])
    assert "staging database" in laptop("sessions", "show", record.id, "--tail", "1", "--json")
    assert "is now called 'Ports'" in laptop("sessions", "rename", record.id, "Ports")
    assert "Ports" in laptop("sessions", "list")
    assert "is deleted" in laptop("sessions", "delete", record.id)
    assert record.id in laptop("sessions", "list", "--deleted")
    assert "with 1 message" in laptop("sessions", "restore", record.id)
    assert "Started session" in laptop("sessions", "reset", record.id)
    assert "deleted for good" in laptop("sessions", "delete", record.id, "--purge", "--yes")
    assert "no session" in laptop("sessions", "show", record.id, code=3).lower()


def test_conversations_of_other_programs_are_imported_and_captured(laptop, served, tmp_path):
    server, place, _ = served
    folder = tmp_path / "laptop/.pi/agent/sessions"
    write_file(folder / "a.jsonl", lines(pi_header(), pi_user("a1", None, "Where is the lighthouse?")))
    assert "1 session with 1 message: 1 imported" in laptop("import", "pi", str(folder))
    assert "1 here already" in laptop("import", "pi", str(folder))
    assert "lighthouse" in laptop("search", "lighthouse")
    transcript = tmp_path / "laptop/claude.jsonl"
    write_file(transcript, lines(cc_user("u1", None, "The walrus is called Otto.")))
    event = json.dumps({"transcript_path": str(transcript), "cwd": str(tmp_path)})
    server.stop()
    assert laptop("hook", "capture", text=event) == ""
    write_file(
        transcript, lines(cc_user("u1", None, "The walrus is called Otto."), cc_user("u2", "u1", "And it sings."))
    )
    assert laptop("hook", "capture", text=event) == ""
    assert "1 waiting on this machine" in laptop("import", "pi", str(folder))
    again = ServeProcess(place, "--port", str(server.port))
    try:
        assert "sings" in laptop("search", "walrus Otto sings", "--source", "sessions")
        assert laptop("sessions", "list").count("claude-code") == 1
        context = laptop("hook", "session-start", text=json.dumps({"cwd": str(tmp_path), "session_id": "new"}))
        assert "5433" in json.loads(context)["hookSpecificOutput"]["additionalContext"]
    finally:
        again.stop()


def test_commands_that_need_the_files_say_where_to_run_them(laptop):
    for command in (["index"], ["doctor"], ["export", "x.zip"], ["sync"], ["serve"], ["config", "get", "model"]):
        assert "does not work on the server that you are logged in to" in laptop(*command, code=2)
    assert "The token says whose memory it is" in laptop("search", "x", "--as", "ada", code=2)


def test_texts_wait_while_the_server_is_away(laptop, served):
    server, place, _ = served
    port = server.port
    server.stop()
    assert "The text waits on this machine" in laptop("add", "Said on the train.")
    assert json.loads(laptop("add", "And then this.", "--json"))["isWaiting"]
    assert "cannot be reached" in laptop("search", "train", code=6)
    again = ServeProcess(place, "--port", str(port))
    try:
        assert "Said on the train" in laptop("search", "train")
        assert laptop("get", "today").count("And then this.") == 1
    finally:
        again.stop()


def test_a_chat_is_with_the_agent_of_the_server(laptop, served):
    _, place, _ = served
    answer = json.loads(laptop("chat", "-m", "Which port is staging on?", "--json"))
    assert "5433" in answer["reply"]
    assert answer["sessionId"]
    assert "5433" in laptop("chat", text="Which port is staging on?\n")
    assert "Agent main" in laptop("chat", "-m", "/status")
    with SessionStore(load_config(home=str(place / "home"), workspace=str(place / "workspace")).config) as sessions:
        (record,) = sessions.recent()
        assert (record.id, record.channel, record.messages) == (answer["sessionId"], "http", 8)


def test_mcp_on_this_machine_is_passed_on(laptop, served, tmp_path):
    client = StdioClient({"HOME": str(tmp_path / "laptop"), "PATH": os.environ["PATH"]}, tmp_path)
    try:
        client.greet()
        assert "5433" in str(client.call("memory_search", query="staging port"))
    finally:
        client.close()


def test_logout_forgets_the_token_and_a_wrong_one_is_not_stored(laptop, served, tmp_path):
    assert "Logged out" in laptop("logout")
    assert "not logged in" in laptop("logout", code=3)
    assert not (tmp_path / "laptop/.kept/login.json").exists()
    assert "no workspace" in laptop("search", "x", code=3)
    server = served[0]
    assert "does not accept the token" in laptop("login", server.url, text="kept_wrong\n", code=3)
    assert "not a token" in laptop("login", server.url, text="\n", code=2)
    assert not (tmp_path / "laptop/.kept/login.json").exists()

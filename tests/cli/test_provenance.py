"""Every remembered fact leads back to where it came from."""

import pytest

from kept.cli.get import trace_note
from kept.errors import NoteNotFound, UsageError
from kept.notes.history.note_history import Author
from kept.sessions.entries import Message
from kept.sessions.store import SessionStore
from tests.support.workspaces import open_memory, write_note


@pytest.fixture
def opened(tmp_path):
    with open_memory(tmp_path) as memory, SessionStore(memory.config) as sessions:
        yield memory, sessions


def talk(sessions: SessionStore) -> tuple[str, str]:
    record = sessions.get_or_create("telegram", "5054")
    sessions.append(record.id, Message.of("user", "The staging database moved to port 5433."))
    return record.id, record.citation


def test_a_fact_of_a_flush_leads_to_its_lines(opened):
    memory, sessions = opened
    session, transcript = talk(sessions)
    text = f"- Staging is on port 5433. (from {transcript}#L2)"
    written = memory.add(text, by_tool=True, author=Author("main", session, "flush"))
    origin = trace_note(memory, sessions, written.citation)
    (source,) = origin.sessions
    assert (source.session_id, source.citation) == (session, f"{transcript}#L2")
    assert "moved to port 5433" in source.text
    assert {item.change.by.tool for item in origin.changes} == {"flush"}
    assert origin.unknown_lines == ()


def test_each_line_leads_to_the_change_that_brought_it(opened, tmp_path):
    memory, sessions = opened
    memory.add("First.", to="memory/a.md", author=Author(tool="kept add", person="ada"), why="to remember")
    memory.add("Second.", to="memory/a.md", author=Author(tool="memory_write", client="claude"))
    path = tmp_path / "workspace/memory/a.md"
    path.write_text(path.read_text() + "\nThird, by hand.\n")
    memory.sync()
    lines = path.read_text().split("\n")
    origin = trace_note(memory, sessions, "memory/a.md")
    by_line = {lines[number - 1]: item.change for item in origin.changes for number in item.lines}
    assert by_line["First."].why == "to remember"
    assert by_line["Second."].by.client == "claude"
    assert by_line["Third, by hand."].kind == "by_hand"


def test_a_session_that_is_gone_is_named_as_missing(opened, tmp_path):
    memory, sessions = opened
    write_note(tmp_path / "workspace", "memory/old.md", "- A fact. (from sessions/20260101T000000Z_gone.jsonl#L3-L4)\n")
    (source,) = trace_note(memory, sessions, "memory/old.md#L1").sessions
    assert (source.session_id, source.missing, source.text) == ("gone", True, "")


def test_a_reference_to_nothing_is_one_clear_line(opened):
    memory, sessions = opened
    with pytest.raises(NoteNotFound):
        trace_note(memory, sessions, "memory/nowhere.md#L1")
    with pytest.raises(NoteNotFound):
        trace_note(memory, sessions, "nobody")
    with pytest.raises(UsageError, match="is a conversation"):
        trace_note(memory, sessions, f"{talk(sessions)[1]}#L2")

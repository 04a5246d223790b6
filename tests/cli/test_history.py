"""kept history and kept undo, and where a remembered fact came from."""

import pytest

from kept.base.records import ENTRY_RULE
from kept.cli.get import trace_note
from kept.cli.history import _written_line
from kept.errors import NoteNotFound, UsageError
from kept.notes.history.note_history import Author
from kept.sessions.entries import Message
from kept.sessions.store import SessionStore
from tests.support.files import write_file
from tests.support.workspaces import open_memory, write_note


@pytest.fixture
def list_note(kept, workspace):
    """A list of three entries that three commands added."""
    for word in ("First", "Second", "Third"):
        assert kept("add", f"- {word}", "--to", "memory/list.md").code == 0
    return workspace / "memory/list.md"


def test_the_history_lists_changes_newest_first_and_shows_diffs(kept, list_note):
    ended = kept("history", env={"USER": "ada"})
    assert ended.code == 0
    assert [line.split()[-1] for line in ended.out.splitlines()] == ["Third", "Second", "First"]
    assert "memory/list.md" in ended.out
    assert "kept add" in ended.out
    assert len(kept("history", "-n", "2").out.splitlines()) == 2
    assert kept("history", "memory/other.md").out == "No changes.\n"
    assert kept("history", "--by", "kept undo").out == "No changes.\n"
    newest = kept("history", "memory/list.md", "--diff", "-n", "1").out
    assert "+- Third" in newest
    assert " - Second" in newest
    change = kept("history", "--json").json["changes"][1]
    assert "+- Second" in kept("history", change["id"][:8]).out


def test_one_change_is_taken_back(kept, list_note):
    change = kept("history", "--json").json["changes"][1]["id"]
    assert kept("undo", change, "--dry-run").code == 0
    assert "- Second" in list_note.read_text()
    ended = kept("undo", change, "--yes")
    assert ended.code == 0
    assert list_note.read_text() == "- First\n- Third\n"
    assert kept("undo", change, "--yes").code == 3
    redo = kept("history", "--json").json["changes"][0]["id"]
    assert kept("undo", redo, "--yes", "--json").json["undone"][0]["id"] == redo
    assert list_note.read_text() == "- First\n- Second\n- Third\n"


def test_an_undo_without_a_terminal_needs_consent(kept, list_note):
    ended = kept("undo")
    assert ended.code == 2
    assert "--yes" in ended.err
    assert "Third" in list_note.read_text()
    assert kept("undo", "abc", "--since", "1h").code == 2
    assert kept("undo", "ffffffff").code == 3


def test_an_edit_is_shown_with_the_whole_line_that_it_wrote(kept, list_note):
    kept("index")
    list_note.write_text("- First\n- Seconded\n- Third\n")
    kept("index")
    line = kept("history").out.splitlines()[0]
    assert line.endswith("another program  - Seconded")
    assert "  edit " in line


def test_a_diff_of_windows_lines_has_no_escapes(kept, list_note, workspace):
    write_file(workspace / "memory/crlf.md", "one\r\n")
    kept("index")
    write_file(workspace / "memory/crlf.md", "one\r\ntwo\r\n")
    kept("index")
    out = kept("history", "--diff").out
    assert "+two\n" in out
    assert "x0d" not in out


@pytest.mark.parametrize(
    ("diff", "line"),
    [
        (f"@@ @@\n+## 09:30\n+\n+{ENTRY_RULE}\n+The gate code is 4711.\n", "The gate code is 4711."),
        ("-- Two\n+- Zwei (since 2026-01-02)\n+- ~~Two~~\n", "- Zwei (since 2026-01-02)"),
        ("+## Heading\n", "## Heading"),
        ("-- Two\r\n", "- Two"),
    ],
)
def test_a_change_is_listed_with_its_telling_line(diff, line):
    assert _written_line(diff) == line


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

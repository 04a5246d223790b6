"""Taking changes back."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept import Memory
from kept.errors import NoteConflict, NotFound
from kept.notes.history.line_changes import LinesOverlap, take_back
from kept.notes.history.note_history import Author
from kept.notes.history.undo import UndoResult, select_by_id, select_changes, undo_changes
from tests.support.histories import changes_of
from tests.support.workspaces import open_memory, write_note

PERSON = Author("main", person="ada")


def undo(memory: Memory, change: str | None = None, **filters: str) -> UndoResult:
    history = memory.history
    changes = select_by_id(history, [change]) if change else select_changes(history, **filters)
    return undo_changes(history, changes, author=PERSON, max_bytes=1_000_000)


def read(tmp_path: Path, path: str) -> str:
    return (tmp_path / "workspace" / path).read_text()


def test_a_change_is_taken_back_once_and_an_undo_can_be_undone(tmp_path):
    with open_memory(tmp_path) as memory:
        memory.add("- First", to="memory/list.md")
        added = memory.add("- Second", to="memory/list.md")
        second = changes_of(memory)[-1].id
        result = undo(memory, second)
        assert read(tmp_path, added.path) == "- First\n"
        with pytest.raises(NotFound, match="already"):
            undo(memory, second)
        undo(memory, result.recorded[0].id)
        assert read(tmp_path, added.path) == "- First\n- Second\n"
        assert [change.is_undone for change in changes_of(memory)] == [False, False, True, False]


@pytest.mark.parametrize("path", ["memory/2026-01-02.md", None])
def test_a_replacement_is_taken_back_whole_in_one_note_or_in_two(tmp_path, path):
    with open_memory(tmp_path) as memory:
        if path:
            write_note(tmp_path / "workspace", path, "- The printer is on floor 3\n")
        old = path or memory.add("The printer is on floor 3").path
        before = read(tmp_path, old)
        new = memory.add("The printer is on floor 4", replaces=f"{old}#L{before.count(chr(10))}").path
        assert "~~" in read(tmp_path, old)
        assert len(undo(memory).changes) == (1 if new == old else 2)
        assert read(tmp_path, old) == before
        assert (tmp_path / "workspace" / new).exists() == (new == old)


def test_a_later_change_of_the_same_lines_is_a_conflict_and_nothing_changes(tmp_path):
    with open_memory(tmp_path) as memory:
        memory.add("- The port is 5433.", to="memory/list.md")
        memory.add("Fine.", to="memory/other.md")
        write_note(tmp_path / "workspace", "memory/list.md", "- The port is 6000.\n")
        memory.sync()
        with pytest.raises(NoteConflict, match="The port is 5433"):
            undo(memory, by="python")
        assert read(tmp_path, "memory/list.md") == "- The port is 6000.\n"
        assert read(tmp_path, "memory/other.md") == "Fine.\n"


def test_all_changes_of_a_session_are_taken_back(tmp_path):
    write_note(tmp_path / "workspace", "MEMORY.md", "# Memory\n\n- Old\n")
    with open_memory(tmp_path) as memory:
        memory.sync()
        agent = Author("main", "abc123", "memory_write")
        memory.add("Wrong.", to="memory", author=agent)
        memory.add("Right.", to="memory")
        memory.add("Wrong too.", to="memory", author=agent)
        memory.add("Wrong again.", to="memory/new.md", author=agent)
        undo(memory, session="abc1")
        assert read(tmp_path, "MEMORY.md") == "# Memory\n\n- Old\n- Right.\n"
        assert not (tmp_path / "workspace/memory/new.md").exists()
        assert undo(memory, session="abc1").changes == ()


def test_changes_since_a_time_are_taken_back_with_edits_by_hand(tmp_path):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/a.md", "One.\n")
    write_note(workspace, "memory/old.md", "Old.\n")
    with open_memory(tmp_path) as memory:
        memory.sync()
        memory.add("Two.", to="memory/a.md")
        write_note(workspace, "memory/a.md", "Something else.\n")
        (workspace / "memory/old.md").rename(workspace / "memory/new.md")
        memory.sync()
        (workspace / "memory/new.md").unlink()
        memory.sync()
        undo(memory, since="2000-01-01T00:00:00.000Z")
        assert read(tmp_path, "memory/a.md") == "One.\n"
        assert read(tmp_path, "memory/old.md") == "Old.\n"
        assert not (workspace / "memory/new.md").exists()


def test_a_rename_is_taken_back_as_a_rename(tmp_path):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/a.md", "One.\n")
    with open_memory(tmp_path) as memory:
        memory.sync()
        (workspace / "memory/a.md").rename(workspace / "memory/b.md")
        memory.sync()
        memory.add("Two.", to="memory/b.md")
        result = undo(memory, changes_of(memory)[0].id)
        assert read(tmp_path, "memory/a.md") == "One.\n\n* * *\n\nTwo.\n"
        assert [(change.path, change.was) for change in result.recorded] == [("memory/a.md", "memory/b.md")]
        undo(memory, result.recorded[0].id)
        assert read(tmp_path, "memory/b.md") == "One.\n\n* * *\n\nTwo.\n"


LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n"]), max_size=6).map(b"".join)


@given(LINES, LINES, LINES)
def test_the_text_before_a_change_comes_back_and_a_later_change_stays(before, after, other):
    assert take_back(before, after, after) == before
    head = b"=== kept ===\n"
    # A later change that is separated from the change by a line that stays.
    assert take_back(before + head, after + head, after + head + other) == before + head + other


def test_an_insertion_inside_the_lines_is_a_conflict():
    with pytest.raises(LinesOverlap):
        take_back(b"a\n", b"a\nb\nc\n", b"a\nb\nnew\nc\n")

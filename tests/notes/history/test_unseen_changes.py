"""Edits by other programs, which a sync notices."""

import shutil

from tests.support.histories import changes_of, log_file
from tests.support.workspaces import open_memory, write_note


def test_the_first_sync_stores_every_note_once(tmp_path):
    for number in range(30):
        write_note(tmp_path / "workspace", f"memory/{number}.md", f"Note {number}\n")
    with open_memory(tmp_path) as memory:
        memory.sync()
        assert changes_of(memory) == []
        lines = log_file(tmp_path).read_text().count('"kind":"baseline"')
        memory.sync(force=True)
        assert log_file(tmp_path).read_text().count("\n") == lines == 30


def test_new_renamed_and_removed_notes_are_recorded(tmp_path):
    workspace = tmp_path / "workspace"
    with open_memory(tmp_path) as memory:
        memory.sync()
        write_note(workspace, "memory/a.md", "Text.\n")
        memory.sync()
        (workspace / "memory/a.md").rename(workspace / "memory/b.md")
        memory.sync()
        (workspace / "memory/b.md").unlink()
        memory.sync()
        added, renamed, removed = changes_of(memory)
        assert (added.kind, added.before) == ("by_hand", None)
        assert (renamed.kind, renamed.was, renamed.path) == ("rename", "memory/a.md", "memory/b.md")
        assert (removed.kind, removed.after) == ("by_hand", None)
        assert memory.history.read_version(removed.before) == b"Text.\n"


def test_edits_while_the_history_could_not_be_written_are_recorded_later(tmp_path):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/a.md", "Before.\n")
    write_note(workspace, "memory/gone.md", "Gone.\n")
    with open_memory(tmp_path) as memory:
        memory.sync()
        (workspace / ".kept/history").rename(workspace / ".kept/away")
        write_note(workspace, ".kept/history", "in the way")
        write_note(workspace, "memory/a.md", "After.\n")
        (workspace / "memory/gone.md").unlink()
        assert memory.sync().problems
        (workspace / ".kept/history").unlink()
        (workspace / ".kept/away").rename(workspace / ".kept/history")
        write_note(workspace, "memory/b.md", "New.\n")
        assert not memory.sync().problems
        changes = {change.path: memory.history.read_version(change.before) for change in changes_of(memory)}
        assert changes == {"memory/a.md": b"Before.\n", "memory/gone.md": b"Gone.\n", "memory/b.md": None}


def test_a_note_that_was_changed_back_or_removed_before_the_next_sync_is_recorded(tmp_path):
    note = write_note(tmp_path / "workspace", "memory/a.md", "Before.\n")
    with open_memory(tmp_path) as memory:
        memory.sync()
        memory.add("One.", to="memory/a.md")
        note.write_text("Before.\n")
        memory.add("Two.", to="memory/b.md")
        (tmp_path / "workspace/memory/b.md").unlink()
        memory.sync()
        changes = [(change.path, change.kind, change.after) for change in changes_of(memory)]
        unchanged = changes_of(memory)[0].before
    assert ("memory/a.md", "by_hand", unchanged) in changes
    assert ("memory/b.md", "by_hand", None) in changes


def test_a_note_that_was_changed_back_is_recorded_by_a_search_that_looks_at_it_alone(tmp_path):
    note = write_note(tmp_path / "workspace", "memory/a.md", "One.\n")
    with open_memory(tmp_path) as memory:
        for _ in range(3):  # from the second search on, the folders are watched
            memory.search("one")
        memory.add("Two.", to="memory/a.md")
        note.write_text("One.\n")
        memory.search("one")
        added, changed_back = changes_of(memory)
        assert (changed_back.kind, changed_back.before) == ("by_hand", added.after)
        assert memory.history.read_version(changed_back.after) == b"One.\n"


def test_a_history_that_was_deleted_begins_again(tmp_path):
    note = write_note(tmp_path / "workspace", "memory/a.md", "Before.\n")
    with open_memory(tmp_path) as memory:
        memory.sync()
        shutil.rmtree(tmp_path / "workspace/.kept")
        memory.search("Before")
        note.write_text("After.\n")
        memory.sync()
        (change,) = changes_of(memory)
        assert memory.history.read_version(change.before) == b"Before.\n"

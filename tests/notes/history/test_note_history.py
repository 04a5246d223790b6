"""The history of notes: what is recorded, and what becomes of damage."""

import json
import os
import stat
import zlib

import pytest

from kept.errors import HistoryDamaged, NotFound
from kept.notes.history.note_history import Author, parse_change
from kept.server.doctor import examine
from tests.support.histories import changes_of, log_file
from tests.support.workspaces import open_memory, write_note


def test_an_added_text_is_recorded_with_author_and_reason(tmp_path):
    with open_memory(tmp_path) as memory:
        written = memory.add("The port is 5433.", author=Author("main", "s1", "memory_write"), why="asked to")
        (change,) = changes_of(memory)
        assert (change.path, change.kind, change.why) == (written.path, "add", "asked to")
        assert change.by == Author("main", "s1", "memory_write")
        assert change.before is None
        assert memory.history.read_version(change.after) == (tmp_path / "workspace" / written.path).read_bytes()


@pytest.mark.parametrize("layout", ["kept", "vault"])
def test_the_history_is_private_and_no_note(tmp_path, layout):
    with open_memory(tmp_path, settings={"workspace_layout": layout}) as memory:
        memory.add("A zebra.", to="memory/animals.md")
        memory.sync()
        assert [hit.path for hit in memory.search("zebra")] == ["memory/animals.md"]
        assert memory.status().files == 1
    for path in (tmp_path / "workspace/.kept").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_a_change_is_found_by_the_beginning_of_its_id(tmp_path):
    with open_memory(tmp_path) as memory:
        memory.add("One.")
        (change,) = changes_of(memory)
        assert memory.history.find_changes([change.id[:6]])[0].id == change.id
        with pytest.raises(NotFound):
            memory.history.find_changes(["ffffffffffffffff0"])


def test_an_edit_before_an_addition_is_recorded_by_itself(tmp_path):
    with open_memory(tmp_path) as memory:
        memory.add("First.", to="memory/a.md")
        note = tmp_path / "workspace/memory/a.md"
        note.write_text("Edited.\n")
        memory.add("Second.", to="memory/a.md")
        changes = changes_of(memory)
        assert [change.kind for change in changes] == ["add", "by_hand", "add"]
        assert memory.history.read_version(changes[1].after) == b"Edited.\n"
        assert [change.before for change in changes] == [None, changes[0].after, changes[1].after]


def test_a_history_that_cannot_be_written_is_reported_and_stops_nothing(tmp_path):
    write_note(tmp_path / "workspace", ".kept", "a file where the folder should be")
    with open_memory(tmp_path) as memory:
        written = memory.add("Still kept.")
        assert "not in the history" in written.degraded[0]
        assert "Still kept." in (tmp_path / "workspace" / written.path).read_text()
        assert memory.search("Still kept").hits
        assert any(problem.path == ".kept/history" for problem in memory.sync(force=True).problems)


def test_a_history_that_is_off_has_no_files(tmp_path):
    with open_memory(tmp_path, settings={"history.enabled": False}) as memory:
        memory.add("One.")
        memory.sync()
    assert os.listdir(tmp_path / "workspace/.kept") == ["storage"]


def test_the_folder_of_the_history_may_not_be_a_link(tmp_path):
    (tmp_path / "workspace").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "workspace/.kept").symlink_to(tmp_path / "elsewhere")
    with open_memory(tmp_path) as memory:
        assert memory.add("One.").degraded
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_torn_line_is_skipped_and_the_next_line_is_whole(tmp_path):
    with open_memory(tmp_path) as memory:
        memory.add("One.", to="memory/a.md")
        path = log_file(tmp_path)
        whole = path.read_bytes()
        path.write_bytes(whole + whole[: len(whole) // 2])
        memory.add("Two.", to="memory/a.md")
        changes = changes_of(memory)
        assert [change.kind for change in changes] == ["add", "add"]
        assert changes[1].before == changes[0].after


@pytest.mark.parametrize("damage", [b"", b"One.\n", zlib.compress(b"Two.\n"), zlib.compress(b"One.\n")[:-1]])
def test_a_damaged_version_is_an_error_and_the_note_is_not_touched(tmp_path, damage):
    with open_memory(tmp_path) as memory:
        memory.add("One.", to="memory/a.md")
        (change,) = changes_of(memory)
        (version,) = (tmp_path / "workspace/.kept/history/objects").rglob("*.z")
        version.write_bytes(damage)
        with pytest.raises(HistoryDamaged):
            memory.history.read_version(change.after)
    assert (tmp_path / "workspace/memory/a.md").read_text() == "One.\n"


def test_histories_of_two_machines_are_read_as_one(tmp_path):
    with open_memory(tmp_path, home=tmp_path / "first") as memory:
        memory.add("From the first.", to="memory/a.md")
    with open_memory(tmp_path, home=tmp_path / "second") as memory:
        memory.sync()
        memory.add("From the second.", to="memory/a.md")
        memory.sync()
        changes = changes_of(memory)
    assert [change.kind for change in changes] == ["add", "add"]
    assert changes[1].before == changes[0].after
    assert len(list((tmp_path / "workspace/.kept/history/changes").iterdir())) == 2


@pytest.mark.parametrize("digest", ["0" * 63, "../" * 21 + "x", "A" * 64])
def test_a_line_with_a_name_that_is_no_hash_is_damaged(digest):
    line = {"id": "1", "time": "2026-03-01T12:00:00.000Z", "path": "a.md", "kind": "add", "before": None}
    assert parse_change(json.dumps({**line, "after": "0" * 64}).encode()) is not None
    assert parse_change(json.dumps({**line, "after": digest}).encode()) is None


def history_checks(memory):
    return [check for check in examine(memory) if check.name == "history"]


def test_lines_that_cannot_be_read_are_reported_and_skipped(tmp_path):
    with open_memory(tmp_path) as memory:
        memory.add("One.", to="memory/a.md")
        memory.sync()
        path = log_file(tmp_path)
        path.write_bytes(path.read_bytes() + b'{"id": "damaged\n')
        (check,) = history_checks(memory)
        assert "1 line cannot be read" in check.detail
        assert len(changes_of(memory)) == 1


def test_a_version_that_is_missing_or_damaged_is_reported(tmp_path):
    with open_memory(tmp_path) as memory:
        memory.add("One.", to="memory/a.md")
        memory.add("Two.", to="memory/b.md")
        memory.sync()
        missing, damaged = (tmp_path / "workspace/.kept/history/objects").rglob("*.z")
        missing.unlink()
        damaged.write_bytes(b"not compressed")
        (check,) = history_checks(memory)
        assert "2 old versions of notes cannot be read" in check.detail
        assert (tmp_path / "workspace/memory/b.md").read_text() == "Two.\n"

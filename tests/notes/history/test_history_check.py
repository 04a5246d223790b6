"""Checking the history."""

from kept.server.doctor import examine
from tests.support.histories import changes_of, log_file
from tests.support.workspaces import open_memory


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

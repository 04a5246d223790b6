"""kept history and kept undo."""

import pytest

from kept.base.records import ENTRY_RULE
from kept.cli.history import _written_line
from tests.support.files import write_file


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

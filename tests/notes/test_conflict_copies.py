"""Conflict copies of notes are recognised by name, named in reports, and searched like the note itself."""

import os

import pytest

from kept.notes.conflict_copies import find_merge_marks, find_original
from kept.server.doctor import examine
from tests.support.workspaces import open_memory, paths, write_note

COPIES = [
    "memory/port.sync-conflict-20261103-091500-ABCDEFG.md",
    "memory/port.sync-conflict-20261103-091500.md",
    "memory/port (conflicted copy 2026-11-03).md",
    "memory/port (Ada's conflicted copy 2026-11-03).md",
    "memory/port (conflicted copy 2026-11-03 101112).md",
    "memory/port (Conflicted copy laptop 202611031011).md",
    "memory/port (in Konflikt stehende Kopie von Ada 2026-11-03).md",
    "memory/port (SFConflict ada@example.com 2026-11-03-09-15-00).md",
]
OTHERS = ["memory/port.md", "memory/port (conflict resolution).md", "memory/conflict.md", "memory/conflicted copy.md"]


@pytest.mark.parametrize("path", COPIES)
def test_the_names_that_programs_give_are_known(path):
    assert find_original(path) == "memory/port.md"
    assert find_original(path.replace("port", "MEMORY")) == "MEMORY.md", "a copy of it is below memory/"


@pytest.mark.parametrize("path", OTHERS)
def test_other_names_are_not_taken_for_copies(path):
    assert find_original(path) is None


def test_a_copy_comes_after_its_note_and_is_named_in_every_report(tmp_path):
    name = COPIES[0]
    words = "disk owner region network backup kernel memory budget contact window release database image volume".split()
    lines = "".join(f"- The {word} of staging, and its {word}s.\n" for word in words)
    note = write_note(tmp_path / "workspace", "memory/port.md", f"# Staging\n\n{lines}- The staging port is 5433.\n")
    copy = write_note(tmp_path / "workspace", name, f"# Staging\n\n{lines}- The staging port is 6000, copper kettle.\n")
    os.utime(note, (1_700_000_000, 1_700_000_000))
    os.utime(copy, (1_790_000_000, 1_790_000_000))
    with open_memory(tmp_path) as memory:
        report = memory.sync()
        assert [(problem.path, problem.reason[:31]) for problem in report.problems] == [
            (name, "conflict copy of memory/port.md")
        ]
        assert name in paths(memory.search("copper kettle")), "what only the copy has is still found"
        assert name in [problem.path for problem in memory.status().problems]
        checks = [check for check in examine(memory) if name in check.detail]
        assert [(check.ok, check.warning) for check in checks] == [(True, True)]


def test_marks_of_a_merge_are_named_with_their_line(tmp_path):
    text = "# Ports\n\n<<<<<<< HEAD\nStaging is on 5433.\n=======\nStaging is on 6000.\n>>>>>>> laptop\n"
    write_note(tmp_path / "workspace", "memory/ports.md", text)
    with open_memory(tmp_path) as memory:
        (problem,) = memory.sync().problems
        assert problem.reason.startswith("line 3 has the marks of a merge")
        assert "memory/ports.md" in paths(memory.search("staging"))
    assert find_merge_marks("<<<<<<< HEAD\nno end\n" * 3) is None
    assert find_merge_marks("a table\n=======\n>>>>>>> quoted\n") is None

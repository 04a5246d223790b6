"""Arguments under the names of OpenClaw's documents."""

import pytest

from tests.support.workspaces import write_note


@pytest.fixture(autouse=True)
def notes(toolbox, workspace):
    write_note(workspace, "MEMORY.md", "".join(f"- Fact number {number} about the heron.\n" for number in range(1, 21)))
    write_note(workspace, "memory/2026-03-14.md", "- The walrus arrived.\n")
    write_note(workspace, f"memory/{toolbox.memory.clock.now():%Y-%m-%d}.md", "- The seal too.\n")


@pytest.mark.parametrize(
    ("arguments", "first", "count"),
    [
        ({"file": "MEMORY.md", "startLine": 3, "endLine": 5}, "- Fact number 3 about the heron.", 3),
        ({"file": "MEMORY.md", "endLine": 2}, "- Fact number 1 about the heron.", 2),
        ({"relPath": "MEMORY.md", "from": 20}, "- Fact number 20 about the heron.", 1),
        ({"file": "MEMORY.md", "date": "2026-03-14", "startLine": 20}, "- Fact number 20 about the heron.", 1),
        ({"file": "daily", "date": "2026-03-14"}, "- The walrus arrived.", 1),
        ({"file": "daily"}, "- The seal too.", 1),
        ({"path": "MEMORY.md", "file": "SOUL.md", "lines": 1}, "- Fact number 1 about the heron.", 1),
    ],
)
def test_a_note_is_read_by_the_names_of_the_documents(toolbox, arguments, first, count):
    outcome = toolbox.run("memory_get", arguments)
    assert not outcome.is_error, outcome.text
    assert outcome.result.text.split("\n")[0] == first
    assert outcome.result.lines == count


def test_a_search_takes_top_k(toolbox):
    outcome = toolbox.run("memory_search", {"query": "heron", "topK": 1})
    assert len(outcome.result.hits) == 1
    assert len(toolbox.run("memory_search", {"query": "walrus", "maxResults": 1, "topK": 90}).result.hits) == 1


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("memory_get", {"file": "MEMORY.md", "startLine": 5, "endLine": 2}),
        ("memory_get", {"file": 7}),
        ("memory_search", {"query": "heron", "topK": 0}),
        ("memory_search", {"query": "heron", "endLine": 3}),
        ("memory_write", {"text": "x", "file": "MEMORY.md"}),
    ],
)
def test_what_makes_no_sense_is_refused_as_before(toolbox, tool, arguments):
    assert toolbox.run(tool, arguments).is_error

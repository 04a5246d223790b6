"""A flush names the line that a fact seems to change."""

from __future__ import annotations

from kept.agent.flush import Fact, select_new_facts
from tests.support.files import write_file


def test_a_flush_names_the_line_that_a_fact_seems_to_change(memory, workspace):
    write_file(workspace / "MEMORY.md", "# Memory\n\n- Staging is on port 5433.\n")
    facts = [Fact("Staging is on port 6000.", 1, 2), Fact("Staging is on port 5433", 3, 3), Fact("Otters swim.", 4, 4)]
    assert [(fact.text, fact.changes) for fact in select_new_facts(memory(), facts)] == [
        ("Staging is on port 6000.", "MEMORY.md#L3"),
        ("Otters swim.", ""),
    ]

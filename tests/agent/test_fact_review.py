"""A model chooses among proposals about pairs of facts, and a flush names the line that a fact seems to change."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from kept.agent.fact_list import read_answer, review_pairs
from kept.agent.flush import Fact, select_new_facts
from kept.testing import ScriptedChat
from kept.workspace.fact_pairs import collect_facts, find_pairs
from kept.workspace.workspace import Workspace
from tests.support.files import write_file

NOW = dt.datetime(2026, 11, 16, 12).astimezone()


@pytest.fixture
def pairs(workspace):
    write_file(
        workspace / "MEMORY.md",
        "# Memory\n\n- Staging is on port 5433\n- Staging is on port 6000\n- Ada lives in Kiel\n"
        "- Kiel is where Ada lives\n- Bob likes green tea\n- Bob likes black tea\n- Cy hums.\n- Cy hums.\n",
    )
    return find_pairs(collect_facts(Workspace.at(str(workspace)), max_bytes=100_000))


def test_a_model_decides_what_pairs_mean(pairs):
    model = ScriptedChat(["1: replaced\n2: same\n3: merge: Bob likes green and black tea."])
    proposals = asyncio.run(review_pairs(model, pairs, NOW))
    assert [(proposal.kind, proposal.source == model.name) for proposal in proposals] == [
        ("duplicate", False),
        ("replacement", True),
        ("duplicate", True),
        ("merge", True),
    ]
    assert proposals[-1].edits[0].text == "- Bob likes green and black tea."
    assert "Staging is on port 5433" in str(model.requests[0])


@pytest.mark.parametrize("answer", ["", "NO_REPLY", "0: same", "99: same", "1: destroy", "1: merge:", "hello\n\n::"])
def test_an_answer_in_another_form_proposes_nothing(pairs, answer):
    assert read_answer(answer, pairs, NOW.date(), "model") == []


def test_a_flush_names_the_line_that_a_fact_seems_to_change(memory, workspace):
    write_file(workspace / "MEMORY.md", "# Memory\n\n- Staging is on port 5433.\n")
    facts = [Fact("Staging is on port 6000.", 1, 2), Fact("Staging is on port 5433", 3, 3), Fact("Otters swim.", 4, 4)]
    assert [(fact.text, fact.changes) for fact in select_new_facts(memory(), facts)] == [
        ("Staging is on port 6000.", "MEMORY.md#L3"),
        ("Otters swim.", ""),
    ]

"""Pairs of facts in the notes, what is proposed about them, and proposals as stored values."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from kept.errors import CitationMismatch
from kept.workspace.fact_pairs import collect_facts, find_pairs, propose, without_overlaps
from kept.workspace.line_edit import apply_edits, load_proposals, parse_proposal, proposal_json, save_proposals
from kept.workspace.workspace import Workspace
from tests.support.files import write_file

TODAY = dt.date(2026, 11, 16)
LIMIT = 1_000_000


@pytest.fixture
def notes(workspace):
    write_file(
        workspace / "MEMORY.md",
        "# Memory\n\n- Staging is on port 5433\n- Ada lives in Kiel.\n- Bob likes tea.\n- ada lives in kiel\n"
        "- Staging is on port 6000\n- ~~Bob likes milk.~~ (until 2025-01-01)\n",
    )
    write_file(workspace / "memory/ops.md", "# Ops\n\n- The backup runs at 03:00.\n")
    write_file(workspace / "memory/2026-11-01.md", "# 2026-11-01\n\nThe backup runs at 04:30.\n\nAda lives in Kiel.\n")
    write_file(workspace / "USER.md", "- Ada lives in Kiel.\n")
    return Workspace.at(str(workspace))


def find(notes):
    pairs = find_pairs(collect_facts(notes, max_bytes=LIMIT))
    return without_overlaps(propose(pair, TODAY) for pair in pairs)


def test_repetitions_and_contradictions_are_proposed(notes, workspace):
    proposals = find(notes)
    assert [(proposal.kind, proposal.reason) for proposal in proposals] == [
        ("replacement", "MEMORY.md#L7 seems to replace MEMORY.md#L3."),
        ("duplicate", "MEMORY.md#L6 repeats MEMORY.md#L4."),
        ("replacement", "memory/2026-11-01.md#L3 seems to replace memory/ops.md#L3."),
    ]
    apply_edits(notes, [edit for proposal in proposals for edit in proposal.edits], max_bytes=LIMIT)
    assert (workspace / "MEMORY.md").read_text() == (
        "# Memory\n\n- ~~Staging is on port 5433~~ (until 2026-11-16)\n- Ada lives in Kiel.\n- Bob likes tea.\n"
        "- Staging is on port 6000 (since 2026-11-16, was 5433)\n- ~~Bob likes milk.~~ (until 2025-01-01)\n"
    )
    assert "- ~~The backup runs at 03:00.~~ (until 2026-11-01)\n" in (workspace / "memory/ops.md").read_text()
    assert find(notes) == []


def test_lines_that_changed_meanwhile_stay_and_so_does_every_other_note(notes, workspace):
    edits = [edit for proposal in find(notes) for edit in proposal.edits]
    write_file(workspace / "memory/ops.md", "# Ops\n\n- No backups any more.\n")
    before = {file: file.read_bytes() for file in workspace.rglob("*.md")}
    with pytest.raises(CitationMismatch):
        apply_edits(notes, edits, max_bytes=LIMIT)
    assert {file: file.read_bytes() for file in workspace.rglob("*.md")} == before


def test_proposals_are_stored_as_they_are(notes, tmp_path):
    proposals = find(notes)
    path = str(tmp_path / "proposals.json")
    save_proposals(path, proposals)
    assert load_proposals(path) == proposals
    assert [proposal.id for proposal in load_proposals(path)] == [proposal.id for proposal in proposals]


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"proposals": [{}]}', '{"proposals": 3}', "\x00"])
def test_a_damaged_list_holds_no_proposals(tmp_path, damage):
    path = tmp_path / "proposals.json"
    path.write_text(damage)
    assert load_proposals(str(path)) == []
    assert load_proposals(str(tmp_path / "none.json")) == []


@pytest.mark.parametrize("field", ["path", "startLine", "endLine", "digest", "text"])
def test_a_proposal_with_a_wrong_field_is_refused(notes, field):
    shape = json.loads(json.dumps(proposal_json(find(notes)[0])))
    for wrong in (None, [], True, -1 if field.endswith("Line") else 1):
        shape["edits"][0][field] = wrong
        with pytest.raises(ValueError, match=r"is not|None"):
            parse_proposal(shape)


def test_properties_at_the_top_of_a_note_are_no_facts(workspace):
    for number in (0, 1):
        write_file(
            workspace / f"memory/p{number}.md",
            f"---\ntitle: Project {number}\ntags: [work/p{number}]\n---\n\nThe lead of it is Ada {number}.\n",
        )
    facts = [fact.statement.text for fact in collect_facts(Workspace(str(workspace)), max_bytes=LIMIT)]
    assert facts == ["The lead of it is Ada 0.", "The lead of it is Ada 1."]

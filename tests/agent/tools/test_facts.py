"""memory_write with replaces, and memory_search as of a day."""

import datetime as dt

import pytest

from kept.agent.tools.toolbox import Toolbox
from kept.sessions.store import SessionStore
from kept.testing import FrozenClock
from tests.support.files import write_file

NOW = dt.datetime(2026, 11, 3, 9, 30).astimezone()


@pytest.fixture
def toolbox(memory, home, workspace):
    write_file(workspace / "MEMORY.md", "# Memory\n\n- Staging is on port 5433.\n")
    clock = FrozenClock(NOW)
    with SessionStore.open(home=home, clock=clock) as sessions:
        yield Toolbox(memory(clock=clock), sessions)


def test_a_changed_fact_is_named_replaced_and_found_as_it_was(toolbox):
    near = toolbox.run("memory_write", {"text": "Staging is on port 6000"})
    assert "Looks like it changes MEMORY.md#L3. To replace that line, give replaces: MEMORY.md#L3@" in near.text
    assert "> - Staging is on port 5433." in near.text
    reference = near.result.near[0].reference
    replaced = toolbox.run("memory_write", {"text": "Staging is on port 6000", "replaces": reference})
    assert "Struck through and dated: MEMORY.md#L4." in replaced.text
    assert replaced.result.replaced == "MEMORY.md#L4"
    stale = toolbox.run("memory_write", {"text": "Staging is on port 7000", "replaces": reference})
    assert stale.is_error
    assert stale.result.code == "citation_mismatch"
    found = toolbox.run("memory_search", {"query": "staging port", "path": "MEMORY.md"})
    assert "Holds since 2026-11-03; before: MEMORY.md#L4." in found.text
    assert "No longer holds since 2026-11-03; replaced by MEMORY.md#L3." in found.text
    then = toolbox.run("memory_search", {"query": "staging port", "asOf": "2026-10-01"})
    assert [str(hit.validity.until) for hit in then.result] == ["2026-11-03"]


def test_a_line_of_any_note_that_a_text_contradicts_is_named_without_an_embedder(toolbox, workspace):
    write_file(workspace / "memory/infra.md", "# Infra\n\nThe staging database moved again: port 6543\n")
    toolbox.memory.sync()
    near = toolbox.run("memory_write", {"text": "The staging database is on port 7000"})
    assert "Looks like it changes memory/infra.md#L3." in near.text


def test_a_repetition_is_not_written_unless_asked(toolbox, workspace):
    text = {"text": "Staging is on port 5433"}
    outcome = toolbox.run("memory_write", text)
    assert "Not written again: MEMORY.md#L3 says the same." in outcome.text
    assert outcome.result.is_new is False
    assert toolbox.run("memory_write", {**text, "again": True}).result.is_new is True

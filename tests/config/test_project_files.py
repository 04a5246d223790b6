"""A project's own settings tune the search in it, and cannot hide answers."""

from __future__ import annotations

import pytest

from kept import Memory
from kept.config import load_config
from tests.support.files import write_file

HIDING = [
    "query: {min_score: 1.0}",
    "query: {max_results: 1}",
    "query: {hybrid: {match: all}}",
    "query: {hybrid: {enabled: false}}",
    "sync: {on_search: false}",
    "sync: {sessions: {delta_bytes: 1000000000}}",
    "max_file_bytes: 1000",
    "query: {hybrid: {vector_weight: 1}}",
    "query: {hybrid: {text_weight: 1}}",
    "query: {hybrid: {candidate_multiplier: 1}}",
]


@pytest.mark.parametrize("text", HIDING)
def test_a_setting_that_would_hide_answers_is_ignored_and_said(tmp_path, text):
    without = load_config(home=str(tmp_path / "home"), workspace=str(tmp_path), environ={}).config
    write_file(tmp_path / ".kept.yaml", f"memory_search: {{{text}}}\n")
    config = load_config(home=str(tmp_path / "home"), workspace=str(tmp_path), environ={}).config
    assert config.memory_search == without.memory_search
    assert "which cannot hide answers" in config.notices[0]


def test_what_shows_more_than_the_persons_own_settings_counts(tmp_path):
    own = "memory_search: {query: {min_score: 0.5, max_results: 9, hybrid: {match: all}}, max_file_bytes: 2000}"
    write_file(tmp_path / "home/config.yaml", f"agents: {{defaults: {{{own}}}}}\n")
    project = "{query: {min_score: 0.25, max_results: 8, hybrid: {match: any}}, max_file_bytes: 3000}"
    write_file(tmp_path / ".kept.yaml", f"memory_search: {project}\n")
    search = load_config(home=str(tmp_path / "home"), workspace=str(tmp_path), environ={}).config.memory_search
    assert (search.query.min_score, search.query.max_results) == (0.25, 9)
    assert (search.query.hybrid.match, search.max_file_bytes) == ("any", 3000)


@pytest.mark.parametrize("text", [*HIDING, "chunking: {tokens: 16}"])
@pytest.mark.parametrize("provider", ["none", "local"])
def test_every_note_is_found_whatever_a_project_sets(tmp_path, text, provider):
    workspace = tmp_path / "workspace"
    write_file(workspace / ".kept.yaml", f"memory_search: {{{text}}}\n")
    for number in range(3):
        filler = "The forest is large and green. " * 50
        write_file(workspace / f"memory/n{number}.md", f"# n{number}\n\nThe okapi {number} lives here.\n\n{filler}\n")
    with Memory.open(workspace, home=tmp_path / "home", settings={"memory_search.provider": provider}) as memory:
        assert {hit.path for hit in memory.search("okapi burrow")} == {f"memory/n{number}.md" for number in range(3)}

"""kept tags, kept links and kept search --tag."""

import pytest

from tests.support.commands import kept_environment, run_kept
from tests.support.workspaces import write_note


@pytest.fixture
def kept(tmp_path):
    workspace = tmp_path / "workspace"
    write_note(
        workspace, "memory/ada.md", "---\ntitle: Ada\ntags: [vip/close]\n---\n\nThe engine. [[plan|soon]] [[Gone]]\n"
    )
    write_note(workspace, "memory/plan.md", "A plan for ![[Ada]] #work\n")

    def run(*args):
        return run_kept("--set", "memory_search.provider=none", *args, env=kept_environment(tmp_path), cwd=tmp_path)

    return run


def test_tags_are_listed_with_counts(kept):
    assert kept("list", "--tags").out == "1  #vip\n1  #vip/close\n1  #work\n"
    assert kept("list", "--tags", "--json").json == {
        "tags": [{"tag": "vip", "notes": 1}, {"tag": "vip/close", "notes": 1}, {"tag": "work", "notes": 1}],
        "degraded": [],
    }


def test_links_of_a_note_are_listed_with_lines(kept):
    outcome = kept("get", "Ada", "--links")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == (
        "memory/ada.md  Ada\n\n"
        '2 links to other notes (1 broken)\n  L6  memory/plan.md  "soon"\n  L6  Gone  broken\n\n'
        "1 link from other notes\n  memory/plan.md#L1  embedded\n"
    )
    shape = kept("get", "memory/ada.md#L6", "--links", "--json").json
    assert [link["broken"] for link in shape["outgoing"]] == [False, True]
    assert shape["incoming"][0]["citation"] == "memory/plan.md#L1"


@pytest.mark.parametrize("command", [["list"], ["search", "engine"], ["search", "--since", "1d"]])
def test_a_tag_that_no_note_has_is_named(kept, command):
    outcome = kept(*command, "--tag", "#Wrok")
    assert (outcome.err, outcome.code) == ("Note: No note has the tag 'wrok'.\n", 0)


def test_broken_links_of_all_notes(kept):
    outcome = kept("list", "--broken-links")
    assert (outcome.code, outcome.out) == (0, "memory/ada.md#L6  Gone  broken\n")
    assert [link["target"] for link in kept("list", "--broken-links", "--json").json["links"]] == ["Gone"]
    kept("add", "Here now.", "--to", "memory/gone.md")
    assert kept("list", "--broken-links").out == "No broken links.\n"
    outcome = kept("list", "--broken-links", "--since", "today")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)

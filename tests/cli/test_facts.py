"""kept add --replaces and kept search --as-of, as commands."""

from tests.support.fake_time import today
from tests.support.files import write_file
from tests.support.terminals import run_on_terminal

STAGING = (
    "# Memory\n\n- Staging is on port 6000 (since 2026-01-03, was 5433)\n"
    "- ~~Staging is on port 5433~~ (until 2026-01-03)\n"
)


def test_add_replaces_a_line(kept, workspace):
    write_file(workspace / "MEMORY.md", "# Memory\n\n- Staging is on port 5433.\n")
    ended = kept("add", "--replaces", "MEMORY.md:3", "Staging is on port 6000")
    assert (ended.code, ended.err) == (0, "")
    assert "Struck through: MEMORY.md#L4." in ended.out
    assert f"- Staging is on port 6000 (since {today()}, was 5433)\n" in (workspace / "MEMORY.md").read_text()


def test_add_names_the_line_that_a_text_changes_and_does_not_repeat_one(kept, workspace):
    write_file(workspace / "memory/our infra.md", "# Infra\n\n- Staging is on port 5433.\n")
    write_file(workspace / "MEMORY.md", "# Memory\n\n- Ada lives in Kiel.\n")
    assert kept("index").code == 0
    changed = kept("add", "Staging is on port 6000")
    assert "Looks like it changes memory/our infra.md#L3: - Staging is on port 5433." in changed.out
    assert "add --replaces 'memory/our infra.md#L3'" in changed.out
    repeated = kept("add", "ada lives in kiel")
    assert "Not written again: MEMORY.md#L3 says the same." in repeated.out
    assert kept("add", "--again", "ada lives in kiel", "--json").json["isNew"] is True


def test_search_shows_what_held_and_when(kept, environment, workspace):
    write_file(workspace / "MEMORY.md", STAGING)
    now = kept("search", "staging port").out
    assert now.index("6000") < now.index("~~Staging")
    assert "before: MEMORY.md#L4" in now
    assert "until 2026-01-03, then MEMORY.md#L3" in now
    shown = run_on_terminal(["search", "staging port"], {**environment, "KEPT_WORKSPACE": str(workspace)})
    assert "\x1b[2mMemory: - ~~Staging is on port 5433~~ (until 2026-01-03)\x1b[0m" in shown, "grey"
    then = kept("search", "staging port", "--as-of", "2025-12-24", "--json").json["results"]
    assert [hit["citation"] for hit in then] == ["MEMORY.md#L4"]
    assert then[0]["validity"] == {
        "holds": True,
        "since": None,
        "until": "2026-01-03",
        "was": None,
        "replacedBy": "MEMORY.md#L3",
        "before": [],
    }

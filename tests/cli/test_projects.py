"""Notes for one repository: where they are written, who finds them, and who does not."""

import json

import pytest

from kept.sessions.store import SessionStore
from tests.support.fake_time import today
from tests.support.files import tree_of, write_file
from tests.support.repositories import BADGER, OTTER, make_clone
from tests.support.workspaces import write_note


@pytest.fixture
def otter(tmp_path):
    return make_clone(tmp_path / "code/otter", OTTER)


@pytest.fixture
def badger(tmp_path):
    return make_clone(tmp_path / "code/badger", BADGER)


@pytest.fixture
def projects(workspace, otter, badger):
    """Two projects with a note each, and a shared note. All are about the release."""
    for name in ("otter", "badger"):
        write_note(workspace, f"memory/projects/{name}/PROJECT.md", f"---\nremote: github.com/ada/{name}\n---\n")
    write_note(workspace, "memory/projects/otter/release.md", "The release of otter is on Monday.\n")
    write_note(workspace, "memory/projects/badger/release.md", "The release of badger is on Friday.\n")
    write_note(workspace, "memory/release.md", "Every release needs a changelog.\n")


def found(ended) -> list[str]:
    return sorted(hit["path"] for hit in ended.json["results"])


SHARED = "memory/release.md"
OWN = "memory/projects/otter/release.md"
OTHER = "memory/projects/badger/release.md"


def test_a_project_is_a_folder_with_the_remote_in_plain_sight(kept, workspace, otter):
    ended = kept("init", "--project", cwd=otter / "src")
    assert (ended.code, "Project otter is ready, for github.com/ada/otter." in ended.out) == (0, True)
    marker = workspace / "memory/projects/otter/PROJECT.md"
    assert marker.read_text() == '---\nremote: "github.com/ada/otter"\n---\n'
    before = tree_of(workspace)
    assert "exists already" in kept("init", "--project", cwd=otter).out
    assert tree_of(workspace) == before
    listed = kept("list", "--projects", "--json", cwd=otter).json
    assert (listed["current"], listed["projects"][0]["remotes"]) == ("otter", ["github.com/ada/otter"])


def test_a_folder_without_a_remote_is_known_by_its_name(kept, tmp_path):
    plain, repository = tmp_path / "thesis", make_clone(tmp_path / "diary", None)
    plain.mkdir()
    for folder in (plain, repository):
        assert kept("init", "--project", folder).code == 0
        assert (
            kept("add", "--project", "A line.", "--json", cwd=folder)
            .json["path"]
            .startswith(f"memory/projects/{folder.name}/")
        )
    assert "the folder 'thesis'" in kept("list", "--projects").out


def test_a_remote_can_be_written_by_hand_and_a_project_renamed_by_its_folder(kept, workspace, otter):
    marker = "---\ntitle: Sea\nremotes:\n  - https://old.example/otter.git\n  - git@github.com:ada/otter\n---\nHello.\n"
    write_note(workspace, "memory/projects/sea/PROJECT.md", marker)
    assert kept("list", "--projects", "--json", cwd=otter).json["current"] == "sea"
    (workspace / "memory/projects/sea").rename(workspace / "memory/projects/ocean")
    assert kept("list", "--projects", "--json", cwd=otter).json["current"] == "ocean"


@pytest.mark.parametrize("marker", ["", "no properties", "---\nremote: [\n---\n", "---\nremote:\n---\n", b"\xff---"])
def test_a_damaged_marker_leaves_a_project_without_a_repository(kept, workspace, otter, marker):
    write_file(workspace / "memory/projects/otter/PROJECT.md", marker)
    listed = kept("list", "--projects", "--json", cwd=otter).json
    assert (listed["current"], listed["projects"][0]["remotes"]) == (None, [])
    assert kept("init", "--project", "otter", cwd=otter).code == 0
    assert kept("list", "--projects", "--json", cwd=otter).json["current"] == "otter"


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["init", "--project", "../x"], 2, "there is no such folder"),
        (["init", "--project", "a b"], 2, "cannot be a project's name"),
        (["init", "--project", "all"], 2, "cannot be a project's name"),
        (["init", "--project", "other"], 2, "belongs to the project 'otter'"),
        (["init", "--project", "otter", "../badger"], 2, "The project 'otter' is for github.com/ada/otter"),
        (["add", "--project", "nobody", "Text."], 3, "There is no project 'nobody'"),
        (["add", "Text.", "--project", "two words"], 3, "There is no project 'two words'"),
        (["search", "x", "--project", "nobody"], 3, "There is no project 'nobody'"),
        (["mcp", "--project", "nobody"], 3, "There is no project 'nobody'"),
    ],
)
def test_what_makes_no_sense_changes_nothing(kept, workspace, otter, badger, args, code, message):
    write_note(workspace, "memory/projects/otter/PROJECT.md", "---\nremote: github.com/ada/otter\n---\n")
    before = tree_of(workspace)
    ended = kept(*args, cwd=otter)
    assert (ended.code, message in ended.err) == (code, True), ended.err
    assert tree_of(workspace) == before


def test_outside_every_project_there_is_none_to_write_to(kept, workspace):
    ended = kept("add", "--project", "A few words.")
    assert (ended.code, "does not belong to a project" in ended.err) == (3, True)
    assert "kept init --project" in ended.err


def test_notes_go_to_the_project_only_if_asked(kept, projects, otter):
    def path(*args):
        return kept("add", *args, "--json", cwd=otter).json["path"]

    assert path("Shared.") == f"memory/{today()}.md"
    assert path("--project", "otter", "Own.") == f"memory/projects/otter/{today()}.md"
    assert path("Own.", "--project") == f"memory/projects/otter/{today()}.md"
    assert path("--project", "badger", "Theirs.") == f"memory/projects/badger/{today()}.md"
    assert path("--project", ".", "Always.", "--to", "memory") == "memory/projects/otter/MEMORY.md"
    assert path("--project", ".", "An idea.", "--to", "ideas.md") == "memory/projects/otter/ideas.md"
    assert path("--project", "none", "Shared.") == f"memory/{today()}.md"


def test_a_search_in_a_project_prefers_it_and_leaves_out_the_others(kept, projects, otter):
    ended = kept("search", "release", "--json", "--explain", "--min-score", "0", cwd=otter)
    assert found(ended) == sorted([OWN, SHARED])
    best = ended.json["results"][0]
    assert (best["path"], best["project"]) == (OWN, "otter")
    assert [part["detail"] for part in best["parts"] if part["name"] == "project"] == ["of the project otter"]
    assert "project" not in [part["name"] for part in ended.json["results"][1]["parts"]]
    assert OTHER not in json.dumps(ended.json)
    assert "project badger" in kept("search", "release of badger").out, "outside every project"


def test_an_imported_conversation_remembers_its_repository(kept, home, otter, tmp_path):
    record = {"type": "user", "uuid": "a", "parentUuid": None, "sessionId": "s", "cwd": str(otter / "src"),
              "timestamp": "2026-03-14T10:00:00.000Z", "message": {"role": "user", "content": "Hello"}}  # fmt: skip
    kept("import", "claude-code", write_file(tmp_path / "s.jsonl", json.dumps(record) + "\n"))
    with SessionStore.open(home=home) as sessions:
        assert sessions.recent()[0].metadata["remote"] == "github.com/ada/otter"


def test_a_session_in_a_project_begins_with_its_notes(kept, workspace, projects, otter, badger):
    write_note(workspace, "MEMORY.md", "- Ines prefers tea.\n")
    write_note(workspace, "memory/projects/otter/MEMORY.md", "- Tabs, not spaces.\n")
    write_note(workspace, f"memory/projects/otter/{today()}.md", "The build is green.\n")
    write_note(workspace, f"memory/projects/badger/{today()}.md", "The build is red.\n")
    event = json.dumps({"session_id": "new", "cwd": str(otter / "src"), "hook_event_name": "SessionStart"})
    context = json.loads(kept("hook", "session-start", stdin=event).out)["hookSpecificOutput"]["additionalContext"]
    for line in ("> - Ines prefers tea.", "> - Tabs, not spaces.", "> The build is green."):
        assert line in context
    assert "red" not in context


def test_connecting_in_a_project_binds_the_entry(kept, workspace, otter):
    dry = kept("connect", "cursor", "--scope", "project", "--dry-run", "--json", cwd=otter)
    assert (dry.json["project"], (workspace / "memory/projects").exists()) == (None, False)
    kept("init", "--project", cwd=otter)
    assert kept("connect", "cursor", "--scope", "project", cwd=otter).code == 0
    entry = json.loads((otter / ".cursor/mcp.json").read_text())["mcpServers"]["kept"]
    assert entry["args"][-3:] == ["mcp", "--project", "otter"]
    assert kept("connect", "cursor", "--scope", "project", "--undo", cwd=otter).code == 0

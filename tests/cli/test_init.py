"""kept init: a new workspace, a folder that is adopted as it is, and a workspace that moves."""

import subprocess

import pytest

from kept.base.safe_yaml import load_yaml
from tests.support.commands import KEPT
from tests.support.files import tree_of, write_file

ALONE = {"KEPT_WORKSPACE": ""}


@pytest.fixture
def vault(tmp_path):
    """An Obsidian vault of six notes."""
    folder = tmp_path / "vault"
    notes = "Inbox.md House/Plumber.md House/Garden/Shed.md People/Ada.md Work/Port.md Journal/01.02.2026.md".split()
    for name in notes:
        write_file(folder / name, f"# {name}\n\nThe heron of {name}.\n")
    write_file(folder / "House/Plumber.md", "The plumber is Mr Rossi.\n")
    write_file(folder / ".obsidian/daily-notes.json", '{"folder": "Journal", "format": "DD.MM.YYYY"}')
    write_file(folder / ".trash/old.md", "The plumber was Mr Verdi.\n")
    write_file(folder / "node_modules/p/README.md", "A plumber for streams.\n")
    write_file(folder / "drafts/x.md", "A plumber in a draft.\n")
    write_file(folder / ".gitignore", "drafts/\n")
    return folder


def test_a_vault_is_adopted_as_it_is(kept, vault, home):
    before = tree_of(vault)
    ended = kept("init", vault, env=ALONE)
    assert ended.code == 0
    assert tree_of(vault) == before, "nothing is added"
    for line in (
        f"Workspace: {vault} (Obsidian)",
        "Notes:     6 notes in 6 folders",
        "Left out:  drafts/; 'kept index --verbose' says why",
        "Daily:     Journal/DD.MM.YYYY.md, as in Obsidian",
    ):
        assert line in ended.out.splitlines()
    assert "6 files indexed" in ended.out
    found = kept("search", "plumber", "--json", env=ALONE).json["results"]
    assert [hit["path"] for hit in found] == ["House/Plumber.md"]
    assert len(kept("list", "--json", env=ALONE).json["files"]) == 6
    assert kept("status", "--json", env=ALONE).json["workspaceDir"] == str(vault)
    assert kept("doctor", env=ALONE).code == 0
    assert kept("get", "1 February 2026", env=ALONE).out.startswith("# Journal")
    assert tree_of(vault) == before


def test_notes_are_not_sent_anywhere_by_init(kept, vault, home):
    write_file(home / "config.yaml", "agents: {defaults: {memory_search: {provider: openai}}}\n")
    ended = kept("init", vault, env=ALONE)
    assert ended.code == 0
    assert "kept index sends the notes to openai" in ended.out
    assert not (home / "agents/main/index.sqlite").exists()


def test_a_second_init_moves_the_workspace_and_says_so(kept, home, tmp_path):
    made = kept("init", "--json", env=ALONE).json
    assert (made["workspaceDir"], made["layout"]) == (str(home / "workspace"), "kept")
    assert made["created"] == ["MEMORY.md", "USER.md", made["config"]]
    assert (home.stat().st_mode & 0o777, (home / "config.yaml").stat().st_mode & 0o777) == (0o700, 0o600)
    write_file(home / "config.yaml", "# mine\ngateway:\n  http: {port: 4711} # port\n")
    ended = kept("init", tmp_path / "notes", env=ALONE)
    assert f"Workspace was {home / 'workspace'}, is now {tmp_path / 'notes'}." in ended.out
    assert (home / "config.yaml").read_text().startswith("# mine\ngateway:\n  http: {port: 4711} # port\nagents:\n")
    added = kept("add", "The heron.", env=ALONE)
    assert added.out.endswith(f" (folder {tmp_path / 'notes'}).\n")
    assert kept("add", "Again.", "--json", env=ALONE).json["workspaceDir"] == str(tmp_path / "notes")
    assert len(list((tmp_path / "notes/memory").iterdir())) == 1
    back = kept("init", home / "workspace", env=ALONE)
    assert f"Workspace was {tmp_path / 'notes'}, is now {home / 'workspace'}." in back.out


def test_settings_that_cannot_be_changed_are_one_line_and_nothing_is_made(kept, home, tmp_path):
    text = "agents: {}\nagents: {list: []}\n"
    write_file(home / "config.yaml", text)
    ended = kept("init", tmp_path / "notes", env=ALONE)
    assert ended.code == 2
    assert "cannot be changed" in ended.err
    assert ended.err.count("\n") == 1
    assert (home / "config.yaml").read_text() == text
    assert not (tmp_path / "notes").exists()


def test_a_workspace_in_use_keeps_its_layout_until_another_is_asked_for(kept, home, vault):
    write_file(home / "config.yaml", f"agents: {{list: [{{id: main, workspace: {vault}}}]}}\n")
    kept("index", env=ALONE)
    ended = kept("init", vault, env=ALONE)
    assert "6 Markdown files in this folder will not be searched" in ended.err
    checks = [check for check in kept("doctor", "--json", env=ALONE).json["checks"] if check["warning"]]
    assert [f"Markdown files in {vault}" in check["detail"] for check in checks] == [True]
    assert "--layout vault" in checks[0]["remedy"]
    kept("init", vault, "--layout", "vault", env=ALONE)
    assert not [check for check in kept("doctor", "--json", env=ALONE).json["checks"] if check["warning"]]


def test_a_vault_that_only_the_environment_names_gets_nothing_added(kept, vault, home):
    write_file(home / "config.yaml", "# mine\n")
    before = tree_of(vault)
    ended = kept("init", env={"KEPT_WORKSPACE": str(vault)})
    assert ended.code == 0
    assert tree_of(vault) == before
    assert (home / "config.yaml").read_text() == "# mine\n"
    assert f"'kept init {vault}'" in ended.err


def test_another_workspace_for_one_run_has_the_usual_layout(kept, vault, tmp_path):
    kept("init", vault, env=ALONE)
    write_file(tmp_path / "other/a.md", "The heron.\n")
    (tmp_path / "other/memory").mkdir()
    other = ("--workspace", tmp_path / "other")
    assert kept(*other, "search", "heron", "--json", env=ALONE).json["results"] == []
    env = {**ALONE, "KEPT_WORKSPACE_LAYOUT": "vault"}
    assert len(kept(*other, "search", "heron", "--json", env=env).json["results"]) == 1
    assert kept(*other, "search", "heron", env={**ALONE, "KEPT_WORKSPACE_LAYOUT": "x"}).code == 2


def test_the_doctor_goes_on_without_a_workspace_and_changes_nothing(kept, tmp_path):
    before = tree_of(tmp_path)
    ended = kept("--workspace", "nowhere", "doctor", "--json")
    checks = {check["name"]: check for check in ended.json["checks"]}
    assert ended.code == 1
    assert "There is no workspace" in checks["workspace"]["detail"]
    assert "kept init" in checks["workspace"]["remedy"]
    assert {"permissions", "sessions", "records", "embedder"} <= set(checks)
    assert tree_of(tmp_path) == before


def test_the_doctor_reports_a_daily_format_that_is_not_used(kept, vault):
    write_file(vault / ".obsidian/daily-notes.json", '{"format": "gggg-[W]ww"}')
    ended = kept("init", vault, env=ALONE)
    assert "Obsidian's settings for daily notes are not used: 'gggg' is not supported" in ended.err
    assert "'gggg' is not supported" in kept("doctor", env=ALONE).out


def test_two_that_start_at_once_both_have_their_entry(environment, home, tmp_path):
    """Each agent's workspace is in the settings afterwards, whichever came first."""
    names = [f"agent{number}" for number in range(4)]
    running = [
        subprocess.Popen([KEPT, "--agent", name, "init", str(tmp_path / name)], env=environment, stdout=subprocess.PIPE)
        for name in names
    ]
    assert [process.wait(timeout=60) for process in running] == [0] * len(names)
    for process in running:
        process.communicate()
    settings = load_yaml((home / "config.yaml").read_text())
    assert {entry["id"]: entry["workspace"] for entry in settings["agents"]["list"]} == {
        name: str(tmp_path / name) for name in names
    }


FULL = {"AGENTS.md", "SOUL.md", "IDENTITY.md", "TOOLS.md", "USER.md", "HEARTBEAT.md", "BOOTSTRAP.md", "MEMORY.md"}


def test_a_full_workspace_has_the_files_of_an_agent_and_keeps_those_that_exist(kept, tmp_path):
    folder = tmp_path / "notes"
    write_file(folder / "SOUL.md", "Mine.\n")
    created = kept("init", "--layout", "kept", "--full", folder, "--json", env=ALONE).json["created"]
    assert FULL - {*created} == {"SOUL.md"}
    assert (folder / "SOUL.md").read_text() == "Mine.\n"
    assert kept("search", "first conversation", "--json", env=ALONE).json["results"][0]["path"] == "BOOTSTRAP.md"
    assert kept("doctor", env=ALONE).code == 0
    again = kept("init", "--full", folder, env=ALONE)
    assert "Everything exists already." in again.out

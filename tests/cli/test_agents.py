"""Agents: who there is, making one, and what happens for a name that nobody has."""

import json

import pytest
import yaml

from kept import Memory
from kept.errors import AgentNotFound
from kept.sessions.store import SessionStore
from tests.support.files import write_file

ALONE = {"KEPT_WORKSPACE": ""}


def agents(kept) -> dict:
    return {agent["name"]: agent for agent in kept("config", "agents", "--json", env=ALONE).json["agents"]}


@pytest.mark.parametrize(
    "command",
    [
        ["add", "An otter."],
        ["sessions", "list"],
        ["connect", "cursor"],
        ["config", "set", "model.name", "opus"],
        ["gateway"],
    ],
)
def test_an_agent_that_was_never_made_is_an_error_that_creates_nothing(kept, home, command):
    kept("init", env=ALONE)
    kept("add", "The otter is called Ottilie.", env=ALONE)
    kept("--agent", "coder", "init", env=ALONE)
    before = sorted(home.rglob("*"))
    ended = kept("--agent", "typo", *command, env=ALONE)
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith("Error: There is no agent 'typo'. There are: main, coder. Create it with")
    assert "'kept --agent typo init'" in ended.err
    assert sorted(home.rglob("*")) == before


def test_a_hook_of_an_unknown_agent_reports_one_line_and_does_not_fail(kept, home, tmp_path):
    event = json.dumps({"transcript_path": str(write_file(tmp_path / "x.jsonl", "{}\n")), "cwd": "/"})
    for name in ("session-start", "capture"):
        ended = kept("--agent", "typo", "hook", name, stdin=event, env=ALONE)
        assert (ended.code, ended.out, ended.err.count("\n")) == (0, "", 1)
        assert "There is no agent 'typo'" in ended.err
    assert not (home / "agents/typo").exists()


def test_python_raises_the_same_error_unless_it_creates_the_agent(home, tmp_path):
    with pytest.raises(AgentNotFound, match=r"There is no agent 'typo'\. There is: main\."):
        Memory.open(home=home, agent="typo")
    with pytest.raises(AgentNotFound):
        SessionStore.open(home=home, agent="typo")
    Memory.open(home=home, agent="helper", create=True).close()
    with Memory.open(home=home, agent="helper") as memory:
        assert memory.workspace.root == str(home / "workspace-helper")


def test_an_agent_gets_notes_of_its_own(kept, home):
    write_file(home / "config.yaml", "# mine\nagents:\n  list:\n    - id: bob   # a friend\n")
    ended = kept("--agent", "coder", "init", env=ALONE)
    assert ended.code == 0
    assert f"Workspace: {home / 'workspace-coder'}" in ended.out
    text = (home / "config.yaml").read_text()
    assert text.startswith("# mine\nagents:\n  list:\n    - id: bob   # a friend\n")
    assert yaml.safe_load(text)["agents"]["list"][1] == {"id": "coder", "workspace": str(home / "workspace-coder")}
    kept("--agent", "coder", "add", "Tabs are forbidden.", env=ALONE)
    assert kept("--agent", "coder", "search", "tabs", "--json", env=ALONE).json["results"]
    kept("init", env=ALONE)
    assert "Tabs" not in kept("search", "tabs", "--json", env=ALONE).out
    assert [agent["sharedWith"] for agent in agents(kept).values()] == [[], [], []]


def test_notes_can_be_shared_and_status_says_so(kept, home):
    kept("init", env=ALONE)
    assert "(not shared with other agents)" in kept("status", env=ALONE).out
    kept("--agent", "helper", "init", home / "workspace", env=ALONE)
    kept("--agent", "helper", "add", "The kettle is broken.", env=ALONE)
    assert kept("search", "kettle", "--json", env=ALONE).json["results"]
    assert "shared with helper" in kept("status", env=ALONE).out
    assert kept("--agent", "helper", "status", "--json", env=ALONE).json["sharedWith"] == ["main"]
    assert agents(kept)["helper"]["sharedWith"] == ["main"]

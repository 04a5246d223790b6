"""An agent in a project: what it writes is the project's, and it learns nothing of another one."""

import json

import pytest

from kept.sessions.entries import Message
from kept.sessions.store import SessionStore
from tests.support.fake_time import today
from tests.support.mcp_client import StdioClient
from tests.support.repositories import BADGER, OTTER, make_clone
from tests.support.workspaces import write_note

SECRET = "memory/projects/badger/secret.md"


@pytest.fixture
def clones(workspace, tmp_path):
    folders = make_clone(tmp_path / "otter", OTTER), make_clone(tmp_path / "badger", BADGER)
    for folder in folders:
        marker = f"---\nremote: github.com/ada/{folder.name}\n---\n"
        write_note(workspace, f"memory/projects/{folder.name}/PROJECT.md", marker)
    write_note(workspace, SECRET, "# Sett\n\nThe badger launches in Norway. #secretly See [[Shared]].\n")
    write_note(workspace, "memory/projects/otter/plan.md", "# Plan\n\nThe otter launches in Wales. [[secret]]\n")
    write_note(workspace, "memory/shared.md", "# Shared\n\nEvery launch needs a checklist. #public\n")
    return folders


@pytest.fixture
def agent(server_env, clones):
    """An agent that works in a clone of otter."""
    stdio = StdioClient(server_env, clones[0] / "src")
    stdio.hello = stdio.greet()
    yield stdio
    stdio.close()


def call(stdio, name, **arguments):
    return stdio.call(name, **arguments)["content"][0]["text"]


def test_it_is_told_which_project_it_works_in(agent):
    assert "the project otter" in agent.hello["instructions"]
    assert call(agent, "memory_status").startswith("Project: otter\n")


def test_what_it_writes_is_the_projects_own(agent, workspace):
    def path(**arguments):
        written = call(agent, "memory_write", text="A fact.", **arguments)
        return written.removeprefix("Written to ").partition("#")[0]

    assert path() == f"memory/projects/otter/{today()}.md"
    assert path(to="memory") == "memory/projects/otter/MEMORY.md"
    assert path(project="none") == f"memory/{today()}.md"
    assert path(project="none", to="memory") == "MEMORY.md"
    assert path(to="memory/ideas.md") == "memory/ideas.md"
    read = call(agent, "memory_get", date="today")
    assert read.startswith("memory/projects/otter/")
    assert "A fact." in read


OUT_OF_REACH = [
    ("memory_search", {"query": "launch", "project": "badger"}),
    ("memory_search", {"query": "launch", "project": "all"}),
    ("memory_write", {"text": "x", "project": "badger"}),
    ("memory_write", {"text": "x", "to": "memory/projects/badger/x.md"}),
    ("memory_write", {"text": "x", "to": "memory/./Projects/badger/x.md"}),
    ("memory_write", {"text": "x", "to": "memory/projects/otter/PROJECT.md"}),
    ("memory_get", {"path": SECRET}),
    ("memory_get", {"path": f"{SECRET}#L1-L9"}),
    ("memory_get", {"path": "kept://notes/memory/projects/badger/secret.md"}),
    ("memory_get", {"path": "memory//projects/badger/secret.md"}),
    ("memory_get", {"path": "memory/projects/badger/secret"}),
    ("memory_get", {"path": "secret"}),
    ("memory_get", {"path": "Sett"}),
]


def test_it_cannot_reach_another_project(agent, workspace):
    for name, arguments in OUT_OF_REACH:
        result = agent.call(name, **arguments)
        assert result["isError"], (arguments, result)
        assert "Norway" not in json.dumps(result)
    assert not (workspace / "memory/projects/badger/x.md").exists()


def test_nothing_else_tells_of_another_project(agent, workspace):
    assert "secretly" not in call(agent, "memory_status")
    listed = call(agent, "memory_list")
    assert "otter/plan.md" in listed
    assert "badger" not in listed
    resources = json.dumps(agent.ask("resources/list")["result"])
    assert "otter/plan.md" in resources
    assert "badger" not in resources
    assert "error" in agent.ask("resources/read", {"uri": "kept://notes/" + SECRET})


def test_conversations_of_another_project_are_not_listed(agent, home, clones):
    with SessionStore.open(home=home) as sessions:
        for folder in clones:
            record = sessions.get_or_create("codex", str(folder), metadata={"cwd": str(folder)})
            sessions.append(record.id, Message.of("user", f"Hello from {folder.name}."))
    shown = call(agent, "sessions_search")
    assert "Hello from otter." in shown
    assert "badger" not in shown
    assert agent.call("memory_get", path=record.citation)["isError"]


def test_a_server_can_be_bound_by_name(server_env, clones, tmp_path):
    stdio = StdioClient(server_env, tmp_path, after=("--project", "badger"))
    assert "the project badger" in stdio.greet()["instructions"]
    stdio.close()

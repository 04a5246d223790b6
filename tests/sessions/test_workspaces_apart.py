"""Conversations belong to one workspace: another one that is named for a run does not open them."""

from pathlib import Path

import pytest

from kept import Memory, SessionStore
from kept.agent.tools.toolbox import Toolbox
from kept.cli.archive.export import export_archive
from kept.config import load_config
from kept.errors import SessionNotFound
from kept.sessions.entries import Message
from tests.support.files import write_file

SAID = "The diagnosis is heliotrope fever."


def talk(memory: Memory) -> str:
    with SessionStore(memory.config) as sessions:
        record = sessions.get_or_create("terminal", "main")
        sessions.append(record.id, Message.of("user", SAID))
        return record.citation


def finds(memory: Memory) -> bool:
    return SAID in str(memory.search("diagnosis heliotrope", min_score=0.0).hits)


@pytest.mark.parametrize("settings", ["", "agents: {defaults: {workspace: WORKSPACE}}\n"])
def test_a_workspace_that_is_named_for_a_run_has_none_of_the_conversations_of_the_agents_own(tmp_path, settings):
    home, own, other = tmp_path / "home", tmp_path / ("notes" if settings else "home/workspace"), tmp_path / "scratch"
    write_file(home / "config.yaml", settings.replace("WORKSPACE", str(own)) or "agents: {}\n")
    with Memory.open(home=home, create=True) as memory:
        assert memory.workspace.root == str(own)
        cited = talk(memory)
        assert finds(memory)
    with Memory.open(other, home=home, create=True) as memory, SessionStore(memory.config) as sessions:
        assert not finds(memory)
        assert Toolbox(memory, sessions).run("sessions_search", {}).result == []
        with pytest.raises(SessionNotFound):
            memory.read(cited)
        talk(memory)
        assert finds(memory)
    with Memory.open(home=home) as memory, SessionStore(memory.config) as sessions:
        assert len(sessions.recent()) == 1
    with Memory.open(own, home=home) as memory:
        assert finds(memory)


def test_in_a_home_without_a_workspace_they_belong_to_the_first_that_was_talked_in_until_that_is_gone(tmp_path):
    home, first, second = tmp_path / "home", tmp_path / "first", tmp_path / "second"
    with Memory.open(first, home=home, create=True) as memory:
        talk(memory)
    with Memory.open(second, home=home, create=True) as memory:
        assert not finds(memory)
    with Memory.open(first, home=home) as memory:
        assert finds(memory)
    moved = first.rename(tmp_path / "moved")
    with Memory.open(moved, home=home) as memory:
        assert finds(memory)


def test_an_export_of_another_workspace_has_no_conversation_of_the_agents_own(tmp_path: Path):
    home, other = tmp_path / "home", tmp_path / "scratch"
    with Memory.open(home=home, create=True) as memory:
        talk(memory)
    Memory.open(other, home=home, create=True).close()
    loaded = load_config(home=str(home), workspace=str(other), environ={})
    export_archive(loaded, str(tmp_path / "x.tar"))
    assert SAID.encode() not in (tmp_path / "x.tar").read_bytes()

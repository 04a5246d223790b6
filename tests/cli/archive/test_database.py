"""A memory moves from files into a database and back by archives, and is whole in both."""

import json

import pytest

from kept.cli.archive.archive_file import check_archive
from kept.cli.archive.export import export_archive
from kept.config import load_config
from kept.gateway.app import open_sessions
from kept.memory import Memory
from kept.sessions.entries import Message
from tests.support.archives import canonical, fill_home, restore
from tests.support.files import write_file

NO_MODEL = {"memory_search.provider": "none"}


@pytest.fixture
def filled(tmp_path):
    """A home in files with notes, their history, two agents and conversations."""
    home = tmp_path / "files"
    fill_home(home)
    for agent in ("main", "work"):
        loaded = load_config(home=str(home), agent=agent, settings=NO_MODEL)
        with Memory.of(loaded) as memory:
            memory.add(f"The {agent} parrot is called Kiwi.", to="memory/birds.md")
            memory.add(f"The {agent} owl is called Otto.", to="memory/birds.md")
    return home


def test_a_memory_moves_into_a_database_and_back_with_history_and_conversations(
    filled, tmp_path, database_address, monkeypatch
):
    export_archive(load_config(home=str(filled)), str(tmp_path / "first.tar.gz"))
    monkeypatch.setenv("KEPT_DATABASE", database_address)
    home = tmp_path / "stateless"
    checked = restore(tmp_path / "first.tar.gz", home, check=True)
    assert not home.exists()
    report = restore(tmp_path / "first.tar.gz", home)
    assert (report.kept, report.counts["new"]) == ((), checked.counts["new"])
    assert {*restore(tmp_path / "first.tar.gz", home).counts.items()} >= {("new", 0), ("same", report.counts["new"])}
    assert not [path for path in home.rglob("*") if path.is_file() and path.suffix in (".md", ".jsonl")]
    export_archive(load_config(home=str(home)), str(tmp_path / "second.tar"))
    first, second = (check_archive(str(tmp_path / name)).files for name in ("first.tar.gz", "second.tar"))
    assert {name: record.sha256 for name, record in first.items() if name != "config.yaml"} == {
        name: record.sha256 for name, record in second.items() if name != "config.yaml"
    }

    monkeypatch.delenv("KEPT_DATABASE")
    restore(tmp_path / "second.tar", tmp_path / "back")
    left = {"machine-id"}  # it names the machine, and is in no archive
    assert canonical(tmp_path / "back") == {name: data for name, data in canonical(filled).items() if name not in left}


def test_what_is_in_the_database_can_be_searched_and_undone(filled, tmp_path, database_address, monkeypatch):
    export_archive(load_config(home=str(filled)), str(tmp_path / "first.tar.gz"))
    monkeypatch.setenv("KEPT_DATABASE", database_address)
    restore(tmp_path / "first.tar.gz", tmp_path / "stateless")
    for agent in ("main", "work"):
        loaded = load_config(home=str(tmp_path / "stateless"), agent=agent, settings=NO_MODEL)
        with Memory.of(loaded) as memory, open_sessions(loaded) as sessions:
            assert memory.search("otto owl").hits[0].path == "memory/birds.md"
            assert [change.kind for change in memory.history.changes("memory/birds.md")] == ["add", "add"]
            memory.history.undo()
            assert "owl" not in memory.read("memory/birds.md").text
            assert f"The {agent} parrot" in memory.read("memory/birds.md").text
            [record] = sessions.recent()
            sessions.append(record.id, Message.of("assistant", "By the harbour."))
            assert len(sessions.deleted()) == 1
    export_archive(load_config(home=str(tmp_path / "stateless")), str(tmp_path / "second.tar"))
    monkeypatch.delenv("KEPT_DATABASE")
    restore(tmp_path / "second.tar", tmp_path / "back")
    for agent in ("main", "work"):
        loaded = load_config(home=str(tmp_path / "back"), agent=agent, settings=NO_MODEL)
        with Memory.of(loaded) as memory, open_sessions(loaded) as sessions:
            [undone, *_] = memory.history.changes("memory/birds.md")
            memory.history.undo([undone.id])
            assert "owl" in memory.read("memory/birds.md").text
            assert [line.content.body.text for line in sessions.tail(sessions.recent()[0].id, 1)] == ["By the harbour."]


def test_agents_that_share_notes_have_a_copy_each_in_a_database(filled, tmp_path, database_address, monkeypatch):
    write_file(filled / "config.yaml", f"agents:\n  list:\n    - {{id: work, workspace: {filled}/workspace}}\n")
    export_archive(load_config(home=str(filled)), str(tmp_path / "kept.tar"))
    monkeypatch.setenv("KEPT_DATABASE", database_address)
    restore(tmp_path / "kept.tar", tmp_path / "stateless")
    for agent in ("main", "work"):
        loaded = load_config(home=str(tmp_path / "stateless"), agent=agent, settings=NO_MODEL)
        with Memory.of(loaded) as memory:
            assert "The main parrot" in memory.read("memory/birds.md").text


def test_the_doctor_checks_a_memory_in_a_database(kept, database_address, tmp_path):
    env = {"KEPT_DATABASE": database_address, "KEPT_MEMORY_SEARCH__PROVIDER": "none"}
    missing = kept("doctor", "--json", env=env)
    assert missing.code == 1
    workspace = next(check for check in json.loads(missing.out)["checks"] if check["name"] == "workspace")
    assert workspace["detail"].startswith("There is no workspace")
    assert kept("add", "--to", "memory/birds.md", "The owl is called Otto.", env=env).code == 0
    assert kept("search", "owl", env=env).code == 0
    checked = kept("doctor", env=env)
    assert (checked.code, checked.err) == (0, ""), checked.out
    for name in ("workspace", "integrity", "freshness", "sessions", "records", "history"):
        assert f"ok     {name}" in checked.out

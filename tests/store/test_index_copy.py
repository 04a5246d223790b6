"""An index that is copied to the other store is the same there, and nothing is embedded again."""

from __future__ import annotations

import random
import shutil

import pytest

from kept.errors import StoreError
from kept.indexing.copy_index import copy_index
from kept.sessions.entries import Message
from kept.sessions.store import SessionStore
from kept.store.postgres import index_copy
from kept.testing import FakeEmbedder
from tests.support.index_dump import dump_index
from tests.support.json_schema import check
from tests.support.many_scripts import describe, note_text
from tests.support.workspaces import index_path, open_memory, write_note

QUESTIONS = ["harbour", "running backup", '"parrot seeds"', "นกแก้ว", "鹦鹉", "λιμάνι", "har*"]


@pytest.fixture
def notes(tmp_path):
    rng = random.Random(6)
    for number in range(25):
        write_note(tmp_path / "workspace", f"memory/{number}.md", note_text(rng))
    write_note(tmp_path / "workspace", "memory/empty.md", "")
    with SessionStore.open(home=tmp_path / "home") as sessions:
        session = sessions.get_or_create("telegram", "5054")
        sessions.append(session.id, Message.of("user", "Where is the harbour?"))
    return tmp_path


def open_on(team, folder, driver, embedder=None):
    store = {"driver": driver, "url": team.server.url, "schema": team.schema}
    settings = {f"memory_search.store.{name}": value for name, value in store.items()}
    return open_memory(folder, settings=settings, embedder=embedder or FakeEmbedder())


def answers(memory) -> list[object]:
    return [[hit[0]["path"] for hit in describe(memory, question)[0]] for question in QUESTIONS]


def test_there_and_back_an_index_stays_the_same(shared_team, notes):
    with open_on(shared_team, notes, "sqlite") as memory:
        memory.sync()
        (notes / "workspace" / "memory" / "3.md").unlink()
        memory.sync()
        before, expected = dump_index(memory), answers(memory)
        assert copy_index(memory.index_service, to_postgres=True).chunks == memory.status().chunks
    embedder = FakeEmbedder()
    with open_on(shared_team, notes, "postgres", embedder) as memory:
        assert dump_index(memory) == before
        assert memory.sync().indexed == 0
        assert answers(memory) == expected
        write_note(notes / "workspace", "memory/new.md", "A new note about the harbour.\n")
        memory.sync()
        after, expected = dump_index(memory), answers(memory)
        index_path(notes).unlink()
        shutil.rmtree(notes / "home" / "agents" / "main" / "index.sqlite-wal", ignore_errors=True)
        copy_index(memory.index_service, to_postgres=False)
    with open_on(shared_team, notes, "sqlite", embedder) as memory:
        assert dump_index(memory) == after
        texts = len(embedder.texts)
        assert memory.sync(force=False).indexed == 0
        assert answers(memory) == expected
        assert len(embedder.texts) == texts + len(QUESTIONS)


def test_a_copy_that_differs_is_not_used(shared_team, notes, monkeypatch):
    with open_on(shared_team, notes, "sqlite") as memory:
        memory.sync()
        copy_index(memory.index_service, to_postgres=True)
        write_note(notes / "workspace", "memory/new.md", "Another note.\n")
        memory.sync()
        monkeypatch.setattr(index_copy, "_as_type", lambda value, kind: not value if kind == "bool" else value)
        with pytest.raises(StoreError, match="the copy differs in"):
            copy_index(memory.index_service, to_postgres=True)
    with open_on(shared_team, notes, "postgres") as memory, memory.index_service.inspecting() as (index, _):
        assert index.find_damage() == []
        assert ("memory", "memory/new.md") not in index.live.file_rows()


def test_the_command_copies_and_says_so(team, kept, workspace):
    write_note(workspace, "memory/a.md", "The heron stands still.\n")
    sqlite = {"KEPT_MEMORY_SEARCH__STORE__DRIVER": "sqlite"}
    assert kept("store", "copy", "--to", "postgres").code != 0  # there is no index yet
    assert kept("index", env=sqlite).code == 0
    report = kept("store", "copy", "--to", "postgres", "--json").json
    check("store copy", report)
    assert report["chunks"] == 1
    assert report["to"].startswith("postgresql:")
    assert "memory/a.md" in kept("search", "heron").out

"""A team whose database goes away and comes back: searches say so or are answered by a replica, and nothing is lost."""

from __future__ import annotations

import socket

import pytest

from kept.errors import StoreUnreachable
from kept.indexing import replica
from kept.postgres import database
from kept.postgres.open_database import close_databases
from kept.sessions.entries import Message
from kept.sessions.store import SessionStore
from kept.testing import FakeEmbedder
from tests.support.index_dump import dump_index
from tests.support.own_server import OwnServer
from tests.support.serve_process import ServeProcess, create_token
from tests.support.waiting import wait_until
from tests.support.workspaces import index_path, open_memory, write_note

REPLICA = {"memory_search.store.replica": "sqlite"}


@pytest.fixture(scope="module")
def own_server():
    server = OwnServer()
    yield server
    server.close()


@pytest.fixture
def server(own_server, environment, monkeypatch):
    own_server.start()
    for name, value in own_server.environment.items():
        monkeypatch.setenv(name, value)
        environment[name] = value
    yield own_server
    close_databases()
    own_server.stop()


def found(memory, query: str) -> list[str]:
    return [hit.path for hit in memory.search(query).hits]


def test_without_a_replica_a_search_says_that_it_cannot_and_writing_goes_on(server, tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", "The heron stands still.\n")
    with open_memory(tmp_path) as memory:
        assert found(memory, "heron") == ["memory/a.md"]
        server.stop()
        with pytest.raises(StoreUnreachable, match="cannot be reached"):
            memory.search("heron")
        memory.add("The otter swims at night.")
        with SessionStore.open(home=tmp_path / "home") as sessions:
            session = sessions.get_or_create("telegram", "5054")
            sessions.append(session.id, Message.of("user", "Does the badger sleep by day?"))
        server.start()
        assert found(memory, "otter")  # by the same process, and with what was added
        assert found(memory, "badger")[0].startswith("sessions/")
        assert found(memory, "heron")[0] == "memory/a.md"


def test_a_command_fails_with_one_line_and_adds_all_the_same(server, kept, workspace):
    assert kept("index").code == 0
    server.stop()
    failed = kept("search", "heron")
    assert (failed.code, failed.out) == (6, "")
    assert "cannot be reached" in failed.err.splitlines()[0]
    assert "cannot be reached" in kept("search", "heron", "--json").json["error"]["message"]
    assert kept("add", "The otter swims at night.").code == 0
    replicated = kept("search", "otter", "--json", env={"KEPT_MEMORY_SEARCH__STORE__REPLICA": "sqlite"}).json
    assert replicated["results"]  # from a replica that is new: the notes are here
    assert "cannot be reached" in replicated["degraded"][0]
    server.start()
    assert kept("search", "otter", "--json").json["results"]


def test_a_replica_answers_also_if_the_notes_are_at_home_in_the_database(server, kept, workspace):
    both = {"KEPT_MEMORY_SEARCH__STORE__REPLICA": "sqlite", "KEPT_SYNC__DATABASE__ENABLED": "true"}
    assert kept("add", "The heron stands still.", env=both).code == 0
    server.stop()
    added = kept("add", "The otter swims at night.", env=both)
    assert (added.code, "not sent to the database of the team yet" in added.err) == (0, True)
    during = kept("search", "otter", "--json", env=both).json
    assert during["results"]
    assert "cannot be reached" in during["degraded"][0]
    server.start()
    assert kept("search", "otter", env=both).code == 0
    assert "To send:    0 files" in kept("sync", "--status", env=both).out


def test_a_running_server_says_so_and_connects_again(server, tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", "The heron stands still.\n")
    token = create_token(tmp_path / "home", "reader", "read")
    running = ServeProcess(tmp_path, **server.environment)
    try:
        with running.client() as probe, running.sign_in(token) as pages:
            assert "heron" in str(running.call(token, "memory_search", query="heron"))
            server.stop()
            assert "cannot be reached" in str(running.call(token, "memory_search", query="heron"))
            assert pages.get("/?q=heron").status_code == 503
            assert probe.get("/healthz").status_code == 200
            write_note(tmp_path / "workspace", "memory/b.md", "The otter swims at night.\n")
            server.start()
            wait_until(lambda: probe.get("/readyz").status_code == 200, "it connects again")
            assert "memory/b.md" in str(running.call(token, "memory_search", query="otter"))
    finally:
        assert running.stop() == 0


def test_a_failover_that_loses_transactions_leaves_nothing_stale_in_memory(server, tmp_path):
    words = ["heron", "kingfisher", "otter", "willow"]
    with open_memory(tmp_path) as memory:
        for number, word in enumerate(words):
            write_note(
                tmp_path / "workspace", f"memory/{word}.md", f"## {word}\n\nThe {word} at the weir.\n" * (number + 1)
            )
            if word == "otter":
                server.save_state()
            memory.sync()
            assert found(memory, word)[0] == f"memory/{word}.md"
        server.go_back()
        write_note(tmp_path / "workspace", "memory/mill.md", "The mill turns by the weir, and turns, and turns.\n")
        memory.sync()
        for word in (*words, "mill"):
            assert found(memory, word)[0] == f"memory/{word}.md"
        with open_memory(tmp_path) as fresh:
            for query in (*words, "mill", "weir"):
                assert found(memory, query) == found(fresh, query)


def test_a_server_that_never_answers_is_given_up(server, tmp_path, monkeypatch):
    monkeypatch.setattr(database, "CONNECT_TIMEOUT_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://postgres@127.0.0.1:{silent.getsockname()[1]}/postgres"
        settings = {"memory_search.store.url": url, **REPLICA}
        write_note(tmp_path / "workspace", "memory/a.md", "The heron stands still.\n")
        with open_memory(tmp_path, settings=settings) as memory:
            result = memory.search("heron")
            assert [hit.path for hit in result.hits] == ["memory/a.md"]
            assert "cannot be reached" in result.degraded[0]


def test_a_replica_answers_in_an_outage_and_pays_for_nothing_twice(server, tmp_path, monkeypatch):
    monkeypatch.setattr(replica, "RETRY_AFTER_S", 0.0)
    for name, text in (("a", "The grebe builds a raft."), ("b", "A kingfisher dives.")):
        write_note(tmp_path / "workspace", f"memory/{name}.md", f"{text}\n")
    embedder = FakeEmbedder()
    with open_memory(tmp_path, settings=REPLICA, embedder=embedder) as memory:
        before = memory.search("grebe")
        assert before.degraded == ()
        assert len([text for text in embedder.texts if "grebe builds" in text]) == 1
        server.stop()
        during = memory.search("grebe")
        assert [(hit.path, hit.grade) for hit in during.hits] == [(hit.path, hit.grade) for hit in before.hits]
        assert "a replica on this machine answers" in during.degraded[0]
        write_note(tmp_path / "workspace", "memory/c.md", "The otter swims at night.\n")
        assert found(memory, "otter") == ["memory/c.md"]
        server.start()
        after = memory.search("otter")
        assert ([hit.path for hit in after.hits][:1], after.degraded) == (["memory/c.md"], ())
        assert len([text for text in embedder.texts if "otter swims" in text]) == 1
    colleague = FakeEmbedder()
    with open_memory(tmp_path, settings={"memory_search.store.workspace": "elsewhere"}, embedder=colleague) as memory:
        memory.sync()
        assert colleague.texts == []  # what the replica embedded is in the team's cache
    settings = {"memory_search.store.driver": "sqlite"}
    with open_memory(tmp_path, settings=settings) as local, open_memory(tmp_path) as shared:
        assert dump_index(local) == dump_index(shared)


def test_a_server_with_a_replica_stays_ready_and_says_what_answers(server, tmp_path, kept, workspace):
    write_note(workspace, "memory/a.md", "The heron stands still.\n")
    token = create_token(tmp_path / "home", "watcher", "read")
    replicated = {"KEPT_MEMORY_SEARCH__STORE__REPLICA": "sqlite"}
    running = ServeProcess(tmp_path, **server.environment, **replicated)
    try:
        with running.client() as probe, running.client(token) as client:
            assert "heron" in str(running.call(token, "memory_search", query="heron"))
            wait_until(lambda: probe.get("/readyz").json()["status"] == "ready", "it is ready")
            assert "kept_database_reachable 1.0" in client.get("/metrics").text
            server.stop()
            assert "heron" in str(running.call(token, "memory_search", query="heron"))
            degraded = {"status": "degraded", "reason": "store_unreachable"}
            wait_until(lambda: probe.get("/readyz").json() == degraded, "it notices")
            assert probe.get("/readyz").status_code == 200
            figures = client.get("/metrics").text
            assert "kept_database_reachable 0.0" in figures
            assert 'kept_replica_answers_total{agent="main"} 0.0' not in figures
            unknown = running.ask("kept_unknown", "tools/list")
            assert (unknown.status_code, int(unknown.headers["retry-after"]) > 0) == (503, True)
            status = kept("status", "--json", env=replicated)
            assert "answered from the replica of 2" in status.json["degraded"][0]
            examined = kept("doctor", env=replicated)
            assert "answered from the replica of 2" in examined.out
            server.start()
            wait_until(lambda: probe.get("/readyz").json()["status"] == "ready", "it connects again")
            assert running.ask("kept_unknown", "tools/list").status_code == 401
    finally:
        assert running.stop() == 0


def test_forgetting_reaches_the_replica(server, tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", "- The heron stands still.\n- The codeword is zanzibarium.\n")
    with open_memory(tmp_path, settings=REPLICA) as memory:
        assert found(memory, "zanzibarium")
        index = index_path(tmp_path)
        assert any(b"zanzibarium" in file.read_bytes() for file in index.parent.glob(f"{index.name}*"))
        assert memory.forgetting.apply(memory.forgetting.plan("zanzibarium")).is_finished
    assert not any(b"zanzibarium" in file.read_bytes() for file in index.parent.glob(f"{index.name}*"))

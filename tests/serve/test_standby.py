"""Servers and a standby of the database: reading from it, and going on with it after a failover."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from benchmarks.team_chaos.replicated_server import ReplicatedServer
from kept.config.search_settings import StoreSettings
from kept.postgres.open_database import close_databases, open_database
from kept.postgres.role_rights import grant_rights
from kept.postgres.schema_migrations import migrate
from tests.support.files import write_file
from tests.support.serve_process import ServeProcess, create_token, revoke_token
from tests.support.waiting import wait_until

SCHEMA = "harbour"
pytestmark = pytest.mark.slow


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReplicatedServer]:
    """A primary and a standby. The environment names both, and asks for the one that can be written."""
    folder = Path(tempfile.mkdtemp(prefix="kept-two-"))  # short, as the path of a socket must be
    running = ReplicatedServer(folder, f"kept {SCHEMA}", synchronous=True)
    settings = {"DRIVER": "postgres", "URL": running.url, "SCHEMA": SCHEMA, "WORKSPACE": "sales"}
    for name, value in settings.items():
        monkeypatch.setenv(f"KEPT_MEMORY_SEARCH__STORE__{name}", value)
    migrate(open_database(StoreSettings(driver="postgres", url=running.url, schema=SCHEMA)), create=True)
    yield running
    close_databases()
    running.close()
    shutil.rmtree(folder)


def store_environment(url: str) -> dict[str, str]:
    settings = {"DRIVER": "postgres", "URL": url, "SCHEMA": SCHEMA, "WORKSPACE": "sales"}
    return {f"KEPT_MEMORY_SEARCH__STORE__{name}": value for name, value in settings.items()}


def start(folder: Path, url: str, *options: str) -> ServeProcess:
    write_file(folder / "workspace/MEMORY.md", "# Memory\n\n- Staging moved to port 5433.\n")
    return ServeProcess(folder, "--set", "gateway.lease_seconds=1", *options, **store_environment(url))


def finds(server: ServeProcess, token: str) -> bool:
    answer = server.ask(token, "tools/call", {"name": "memory_search", "arguments": {"query": "staging port"}})
    return answer.status_code == 200 and "MEMORY.md#L" in answer.text


def test_a_server_reads_from_a_standby_with_a_role_that_may_only_read(servers, tmp_path):
    home = tmp_path / "one/home"
    token = create_token(home, "reader", "read")
    primary, standby = servers.url.partition("host=")[2].partition("&")[0].split(",")
    with psycopg.connect(f"postgresql://postgres@/postgres?host={primary}", autocommit=True) as connection:
        connection.execute("CREATE ROLE reader LOGIN")
    grant_rights(
        open_database(StoreSettings(driver="postgres", url=servers.url, schema=SCHEMA)), "reader", read_only=True
    )
    writer = start(tmp_path / "one", servers.url)
    try:
        wait_until(lambda: finds(writer, token), "the primary has the index")
        url = f"postgresql://reader@/postgres?host={standby}"
        reader = start(tmp_path / "two", url, "--set", "gateway.auto_responder.enabled=false")
        try:
            wait_until(lambda: finds(reader, token), "the standby has it too")
            with reader.client() as probe:
                assert probe.get("/readyz").json()["status"] == "ready"
            later = create_token(home, "later", "read")
            wait_until(lambda: finds(reader, later), "a new token arrives at the standby")
            revoke_token(home, "reader")
            wait_until(lambda: reader.ask(token, "tools/list").status_code == 401, "so does a revocation")
            assert finds(reader, later)
        finally:
            assert reader.stop() == 0
    finally:
        assert writer.stop() == 0


def test_servers_go_on_by_themselves_after_a_failover(servers, tmp_path):
    token = create_token(tmp_path / "one/home", "all", "admin")
    running = [start(tmp_path / name, servers.url) for name in ("one", "two")]
    try:
        assert all(finds(server, token) for server in running)
        with running[0].client(token) as client:
            sent = client.post("/v1/messages", json={"user": "ada", "text": "Staging?", "id": "before"})
            assert sent.json()["status"] == "answered"
        servers.fail_over()
        for server in running:
            wait_until(lambda server=server: finds(server, token), "it searches the new primary")
        with running[1].client(token) as client:
            assert client.get("/v1/messages/before").json()["reply"] == sent.json()["reply"]
            message = {"user": "bob", "text": "Staging?", "id": "after"}

            def is_answered() -> bool:
                answer = client.post("/v1/messages", json=message)
                return answer.status_code == 200 and answer.json()["status"] == "answered"

            wait_until(is_answered, "messages are accepted and answered again")
        later = create_token(tmp_path / "two/home", "later", "read")
        assert finds(running[0], later)
    finally:
        for server in running:
            assert server.stop() == 0

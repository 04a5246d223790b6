"""What only a storage in PostgreSQL has to stand: lost connections, frozen servers, successors, schemas, migrations."""

import os
import re
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from kept.errors import (
    DatabaseBusy,
    DatabaseRefused,
    DatabaseTooNew,
    DatabaseUnreachable,
    LeaseLost,
    LockBusy,
    PathRefused,
    StorageConflict,
)
from kept.storage.contract import START, Append, Remove, Write
from kept.storage.open import open_database
from kept.storage.postgres import database as database_module
from kept.storage.postgres import leases
from kept.storage.postgres.database import Database, DeadlineConnection
from kept.storage.postgres.postgres_storage import PostgresStorage
from tests.support.killing import die, is_killed
from tests.support.postgres import new_schema, running_postgres
from tests.support.storage_machine import CHANGES, REFUSALS, SETTINGS, StorageMachine, make_real


class ConnectionCutter:
    """A network that fails: a Unix socket in ``folder`` that leads to the server's.

    It cuts before the n-th message of either side, once.
    """

    def __init__(self, server_folder: str, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self._target = os.path.join(server_folder, ".s.PGSQL.5432")
        self._lock = threading.Lock()
        self._left: dict[str, int] = {}
        self._open: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.path.join(folder, ".s.PGSQL.5432"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self) -> str:
        return f"postgresql:///postgres?host={self.folder}&user=postgres"

    def cut(self, side: str, after: int) -> None:
        """Cut a connection when the ``client`` or the ``server`` has sent so many messages more."""
        with self._lock:
            self._left = {side: after}

    def close(self) -> None:
        self._listener.close()
        with self._lock:
            for end in self._open:
                _close(end)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                with self._lock:
                    self._open += [client, server]
                for side, source, sink in (("client", client, server), ("server", server, client)):
                    threading.Thread(target=self._pass_on, args=(side, source, sink), daemon=True).start()

    def _pass_on(self, side: str, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while (data := source.recv(1 << 16)) and not self._is_cut(side):
                sink.sendall(data)
        _close(source)
        _close(sink)

    def _is_cut(self, side: str) -> bool:
        with self._lock:
            if side not in self._left:
                return False
            self._left[side] -= 1
            if self._left[side] >= 0:
                return False
            self._left = {}
            return True


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@pytest.fixture
def cutter(postgres, tmp_path_factory):
    cutter = ConnectionCutter(postgres.folder, os.path.join(postgres.folder, new_schema()))
    yield cutter
    cutter.close()


@pytest.fixture
def cut_off(database, cutter):
    """A storage whose connections can be cut."""
    behind = Database(cutter.url(), schema=database.schema)
    yield PostgresStorage(behind, "workspace:test")
    behind.close()


def lines(storage):
    return [line.data for line in storage.logs.read("s.jsonl")]


@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize("after", range(4))
def test_a_commit_whose_connection_is_lost_anywhere_is_made_once(cut_off, cutter, side, after):
    cut_off.commit([Append("s.jsonl", [b"first"])])
    cutter.cut(side, after)
    ends = cut_off.commit([Append("s.jsonl", [b"second"]), Write("a.md", b"1")])
    assert lines(cut_off) == [b"first", b"second"]
    assert ends["s.jsonl"] == cut_off.logs.end("s.jsonl")


def test_any_sequence_of_commits_and_lost_connections_loses_nothing(postgres, cutter):
    class PostgresMachine(StorageMachine):
        def __init__(self):
            super().__init__()
            self.database = Database(cutter.url(), schema=new_schema())
            self.database.migrate()
            self.files = PostgresStorage(self.database, "workspace:test")

        def teardown(self):
            self.database.close()
            with psycopg.connect(postgres.url()) as connection:
                connection.execute(f"DROP SCHEMA {self.database.schema} CASCADE")
            super().teardown()

        @rule(
            changes=st.lists(CHANGES, min_size=1, max_size=4),
            fault=st.sampled_from([None, None, ("client", 0), ("client", 1), ("server", 0), ("server", 1)]),
        )
        def commit(self, changes, fault):
            real = [make_real(change, self.memory) for change in changes]
            if fault:
                cutter.cut(*fault)
            try:
                receipt = self.memory.commit(real)
            except REFUSALS:
                with pytest.raises(REFUSALS):
                    self.files.commit(real)
                return
            assert self.files.commit(real) == receipt

        @rule(path=st.sampled_from(["a.md", "memory/c.md"]), data=st.binary(max_size=40))
        def edit_by_another_program(self, path, data):
            PostgresStorage(self.database, "workspace:test").commit([Write(path, data)])
            self.memory.commit([Write(path, data)])

    run_state_machine_as_test(PostgresMachine, settings=SETTINGS)


def test_a_process_that_is_killed_before_its_commit_changes_nothing(postgres, database):
    storage = PostgresStorage(database, "workspace:test")
    storage.commit([Write("a.md", b"1")])

    def act():
        own = Database(postgres.url(), schema=database.schema)
        plain = own.sql
        own.sql = lambda text: die() if "INSERT INTO kept.receipts" in text else plain(text)
        PostgresStorage(own, "workspace:test").commit([Write("a.md", b"2"), Append("s.jsonl", [b"1"])])

    assert is_killed(act)
    assert storage.documents.read("a.md").data == b"1"
    assert lines(storage) == []
    storage.commit([Write("a.md", b"3")])


def test_a_server_that_does_not_answer_is_reported_by_the_deadline(monkeypatch):
    monkeypatch.setattr(DeadlineConnection, "deadline_s", 1.0)
    monkeypatch.setattr(database_module, "CONNECT_S", 2)
    with running_postgres() as server:
        database = Database(server.url(), schema="kept")
        database.migrate()
        storage = PostgresStorage(database, "workspace:test")
        storage.commit([Write("a.md", b"1")])
        server.signal(signal.SIGSTOP)
        try:
            for act in (lambda: storage.documents.read("a.md"), lambda: storage.commit([Write("a.md", b"2")])):
                with pytest.raises(DatabaseUnreachable):
                    act()
        finally:
            server.signal(signal.SIGCONT)
        storage.commit([Write("a.md", b"3")])
        server.stop()
        server.start()
        assert storage.documents.read("a.md").data == b"3"
        storage.commit([Append("s.jsonl", [b"1"], START)])
        server.stop()
        with pytest.raises(DatabaseUnreachable):
            storage.documents.read("a.md")
        server.start()
        assert lines(storage) == [b"1"]
        database.close()


def test_a_holder_that_froze_cannot_write_beside_its_successor(database):
    first, second = (PostgresStorage(database, "workspace:test") for _ in range(2))
    with first.lease("gateway", wait_s=0) as lost:
        database.query("UPDATE kept.leases SET expires = clock_timestamp() - interval '1 s' RETURNING 1")
        with second.lease("gateway", wait_s=0) as held:
            assert held.number > lost.number
            with pytest.raises(LeaseLost):
                first.commit([Write("a.md", b"1")], lease=lost)
            second.commit([Write("a.md", b"2")], lease=held)
    with second.lease("gateway", wait_s=0):
        pass


def test_a_lease_is_renewed_while_it_is_held(database, monkeypatch):
    monkeypatch.setattr(leases, "LEASE_S", 1)
    storage = PostgresStorage(database, "workspace:test")
    with storage.lease("gateway", wait_s=0) as lease:
        with pytest.raises(LockBusy), PostgresStorage(database, "workspace:test").lease("gateway", wait_s=2.5):
            pass
        storage.commit([Write("a.md", b"1")], lease=lease)


def test_roots_and_schemas_have_nothing_to_do_with_each_other(postgres, database):
    other = Database(postgres.url(), schema=new_schema())
    other.migrate()
    storages = [
        PostgresStorage(database, "workspace:ada"),
        PostgresStorage(database, "workspace:bob"),
        PostgresStorage(other, "workspace:ada"),
    ]
    for number, storage in enumerate(storages):
        storage.commit([Write("a.md", b"%d" % number), Append("s.jsonl", [b"%d" % number])])
    assert [storage.documents.read("a.md").data for storage in storages] == [b"0", b"1", b"2"]
    assert [lines(storage) for storage in storages] == [[b"0"], [b"1"], [b"2"]]
    other.close()
    with pytest.raises(DatabaseRefused):
        Database(postgres.url(), schema='x"; DROP SCHEMA kept')


def test_a_migration_gives_way_and_disturbs_nobody(postgres, monkeypatch):
    monkeypatch.setattr(database_module, "LOCK_TIMEOUT_S", 1)
    monkeypatch.setattr(database_module, "MIGRATION_TRIES", 2)
    database = Database(postgres.url(), schema=new_schema())
    database.migrate()
    storage = PostgresStorage(database, "workspace:test")
    storage.commit([Write("a.md", b"1")])
    later = [*database_module._migrations(), "ALTER TABLE kept.documents ADD COLUMN more text"]
    monkeypatch.setattr(database_module, "_migrations", lambda: later)
    with psycopg.connect(postgres.url()) as report:
        report.execute(f"SELECT count(*) FROM {database.schema}.documents")
        with ThreadPoolExecutor(1) as pool:
            migration = pool.submit(database.migrate)
            assert storage.documents.read("a.md").data == b"1"
            with pytest.raises(DatabaseBusy):
                migration.result()
    database.migrate()
    assert storage.documents.read("a.md").data == b"1"
    monkeypatch.undo()
    with pytest.raises(DatabaseTooNew):
        storage.commit([Write("a.md", b"2")])
    with pytest.raises(DatabaseTooNew):
        database.check()
    assert storage.documents.read("a.md").data == b"1"
    database.close()


def test_a_forked_child_leaves_the_connections_of_its_parent_alone(database):
    storage = PostgresStorage(database, "workspace:test")
    storage.commit([Append("s.jsonl", [b"parent"])])
    child = os.fork()
    if not child:
        try:
            storage.commit([Append("s.jsonl", [b"child"])])
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    storage.commit([Append("s.jsonl", [b"parent again"])])
    assert lines(storage) == [b"parent", b"child", b"parent again"]


def test_a_failover_makes_readers_look_at_everything_again(database, monkeypatch):
    from kept.storage.postgres import postgres_storage

    storage = PostgresStorage(database, "workspace:test")
    storage.commit([Write("a.md", b"1"), Write("b.md", b"1")])
    _, cursor = storage.documents.changes()
    storage.commit([Remove("b.md")])
    monkeypatch.setattr(postgres_storage, "_TIMELINE", "'00000009'")
    changed, cursor = storage.documents.changes(cursor)
    assert [(change.path, change.info is None) for change in changed] == [("a.md", False)]
    assert storage.documents.changes(cursor)[0] == []


def test_names_that_are_no_text_and_removed_memories_are_refused(database):
    storage = PostgresStorage(database, "workspace:test")
    with pytest.raises(PathRefused):
        storage.commit([Write(os.fsdecode(b"a\xff.md"), b"1")])
    storage.commit([Write("a.md", b"1")])
    database.query("DELETE FROM kept.roots RETURNING 1")
    with pytest.raises(Exception, match="was removed"):
        storage.commit([Write("a.md", b"1")])


def test_a_log_that_is_rewritten_while_it_is_read_is_not_mixed(database, monkeypatch):
    from kept.storage.contract import Rewrite
    from kept.storage.postgres import postgres_storage

    monkeypatch.setattr(postgres_storage, "_BLOCK_LINES", 2)
    storage = PostgresStorage(database, "workspace:test")
    storage.commit([Append("s.jsonl", [b"1", b"2", b"3"])])
    reading = storage.logs.read("s.jsonl")
    assert next(reading).data == b"1"
    storage.commit([Rewrite("s.jsonl", [b"4", b"5"])])
    with pytest.raises(StorageConflict):
        list(reading)


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        ("nonsense", DatabaseRefused, "cannot be read"),
        ("postgres//ada:secret@host/x", DatabaseRefused, "cannot be read"),
        ("postgresql:///x?schema=Bad-Name", DatabaseRefused, "no name of a schema"),
        ("postgresql://ada:secret@127.0.0.1:1/x", DatabaseUnreachable, "(Connection refused)"),
        ("postgresql:///x?host=/nowhere", DatabaseUnreachable, "(No such file or directory)"),
    ],
)
def test_an_address_that_leads_nowhere_is_reported_without_its_password(address, error, message):
    with pytest.raises(error) as raised:
        open_database(address)
    assert message in str(raised.value)
    assert "secret" not in str(raised.value)


def test_without_the_package_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "kept.storage.postgres.database", None)
    with pytest.raises(DatabaseRefused, match=re.escape("kept[postgres]")):
        open_database("postgresql:///x")

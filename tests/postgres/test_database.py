"""The database of a team: its connections, its errors and its tables."""

from __future__ import annotations

import subprocess
import sys
import threading

import psycopg
import pytest

from kept.config.search_settings import StoreSettings
from kept.errors import ConfigError, StoreBusy, StoreError, StoreTooNew, StoreUnavailable, StoreUnreachable
from kept.postgres import schema_migrations
from kept.postgres.database import Database
from kept.postgres.open_database import open_database
from kept.postgres.schema_migrations import migrate, read_status
from tests.support.teams import Team

PASSWORD = "hunter2-correct-horse"


@pytest.fixture
def fresh(postgres_server):
    """A schema that is not there yet."""
    team = Team(postgres_server, create=False)
    yield team
    team.close()


def test_reading_sees_one_state_and_writes_nothing(team):
    with team.database.reading() as reader:
        assert reader.execute("SELECT count(*) FROM leases").fetchone() == (0,)
        with team.database.writing() as writer:
            writer.execute("INSERT INTO leases VALUES ('a', 'b', now())")
        assert reader.execute("SELECT count(*) FROM leases").fetchone() == (0,)
    with team.database.reading() as reader:
        assert reader.execute("SELECT count(*) FROM leases").fetchone() == (1,)
    with pytest.raises(StoreError, match="standby"), team.database.reading() as reader:
        reader.execute("DELETE FROM leases")


def test_a_failed_transaction_changes_nothing_and_quotes_no_row(team):
    with pytest.raises(StoreError) as failed, team.database.writing() as writer:
        writer.execute("INSERT INTO leases VALUES ('secret words', 'b', now()), ('secret words', 'b', now())")
    assert "secret words" not in str(failed.value)
    with team.database.reading() as reader:
        assert reader.execute("SELECT count(*) FROM leases").fetchone() == (0,)


def test_a_lost_connection_fails_one_transaction_and_the_next_one_works(team):
    def lose_connection() -> None:
        with team.database.writing() as writer:
            writer.execute("INSERT INTO leases VALUES ('a', 'b', now())")
            assert team.end_connections() >= 1
            writer.execute("SELECT 1")

    with pytest.raises(StoreUnreachable):
        lose_connection()
    with team.database.writing() as writer:
        writer.execute("INSERT INTO leases VALUES ('a', 'b', now())")
    team.end_connections()  # idle ones are replaced without a failure
    with team.database.reading() as reader:
        assert reader.execute("SELECT count(*) FROM leases").fetchone() == (1,)


def test_a_database_that_comes_back_is_used_again(team, tmp_path):
    link = tmp_path / "s"
    database = Database(f"postgresql://postgres:{PASSWORD}@/postgres?host={link}", team.schema)
    for _ in range(2):
        with pytest.raises(StoreUnreachable) as failed, database.reading():
            pass
        assert PASSWORD not in str(failed.value)
        assert failed.value.__cause__ is None
        link.symlink_to(team.server.sockets)
        with database.reading() as reader:
            assert reader.execute("SELECT 1").fetchone() == (1,)
        link.unlink()
        team.end_connections()
    database.close()


def test_a_statement_has_a_time_limit(team):
    with pytest.raises(StoreBusy, match="statement timeout"), team.database.writing(timeout_s=0.01) as writer:
        writer.execute("SELECT pg_sleep(30)")


def test_more_threads_than_connections_take_turns(team):
    database = Database(team.server.url, team.schema, max_connections=2)
    seen: list[int] = []

    def use() -> None:
        with database.writing() as writer:
            seen.append(writer.execute("SELECT pg_backend_pid()").fetchone()[0])

    threads = [threading.Thread(target=use) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 12
    assert len({*seen}) <= 2
    database.close()


def test_hosts_that_set_up_at_once_do_it_once(fresh):
    results: list[tuple[int, ...]] = []

    def set_up() -> None:
        database = Database(fresh.server.url, fresh.schema)
        results.append(tuple(part.version for part in migrate(database, create=True)))
        database.close()

    threads = [threading.Thread(target=set_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(0 in versions for versions in results) == 1
    assert read_status(fresh.database).state == "ready"


def test_tables_of_another_version_are_refused(fresh, monkeypatch):
    with pytest.raises(StoreUnavailable, match="has no tables") as missing, fresh.database.reading():
        pass
    assert missing.value.hint == "Run 'kept store init'."
    with pytest.raises(StoreUnavailable, match="has no tables"):
        migrate(fresh.database, create=False)
    migrate(fresh.database, create=True)
    later = {
        **schema_migrations.PARTS,
        "state": (*schema_migrations.PARTS["state"], (99, "CREATE TABLE later (a int)")),
    }
    monkeypatch.setattr(schema_migrations, "PARTS", later)
    with pytest.raises(StoreUnavailable, match="older than this Kept") as outdated, fresh.database.reading():
        pass
    assert "kept store migrate" in outdated.value.hint
    migrate(fresh.database, create=False)
    with fresh.database.reading() as reader:
        reader.execute("SELECT a FROM later")
    monkeypatch.undo()
    for refused in (migrate, lambda database, create: database.reading().__enter__()):
        with pytest.raises(StoreTooNew, match="later version of Kept"):
            refused(Database(fresh.server.url, fresh.schema), create=True)


def test_a_failed_migration_changes_nothing(fresh, monkeypatch):
    broken = {"state": (*schema_migrations.PARTS["state"], (99, "CREATE TABLE half (a int); SELECT nonsense"))}
    monkeypatch.setattr(schema_migrations, "PARTS", broken)
    with pytest.raises(StoreError):
        migrate(fresh.database, create=True)
    with fresh.server.connect() as connection:
        assert connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [fresh.schema]).fetchone() is None


def test_a_missing_extension_is_named(fresh, monkeypatch):
    monkeypatch.setattr(schema_migrations, "EXTENSIONS", ("no_such_extension",))
    with pytest.raises(StoreUnavailable, match="no_such_extension") as failed:
        migrate(fresh.database, create=True)
    assert "CREATE EXTENSION no_such_extension;" in failed.value.hint


def test_a_team_cannot_see_the_tables_of_another(team, postgres_server):
    other = Team(postgres_server)
    with other.database.writing() as writer:
        writer.execute("INSERT INTO leases VALUES ('a', 'b', now())")
    with team.database.reading() as reader:
        assert reader.execute("SELECT count(*) FROM leases").fetchone() == (0,)
    other.server.drop_schema(other.schema)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (StoreSettings(), "driver is sqlite"),
        (StoreSettings(driver="postgres"), "no address"),
        (StoreSettings(driver="postgres", url=f"nonsense {PASSWORD}"), "not an address"),
        (StoreSettings(driver="postgres", url=f"postgresql://u:{PASSWORD}@[::1"), "not an address"),
        (StoreSettings(driver="postgres", url_file="/nonexistent/url"), "cannot be read"),
    ],
)
def test_wrong_settings_are_explained_without_the_address(settings, message):
    with pytest.raises(ConfigError, match=message) as failed:
        open_database(settings)
    assert PASSWORD not in str(failed.value)


def test_an_address_may_come_from_a_file(team, tmp_path):
    (tmp_path / "url").write_text(team.server.url + "\n")
    settings = StoreSettings(driver="postgres", url_file=str(tmp_path / "url"), schema=team.schema)
    assert open_database(settings) is team.database


def test_a_child_process_does_not_end_the_connections_of_its_parent(team):
    with team.database.reading():
        pass
    code = (
        "import os\n"
        "from tests.support.teams import Database\n"
        f"database = Database({team.server.url!r}, {team.schema!r})\n"
        "def ask():\n"
        "    with database.reading() as reader:\n"
        "        return reader.execute('SELECT pg_backend_pid()').fetchone()[0]\n"
        "first = ask()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if ask() != first else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert ask() == first\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)


def test_the_server_is_not_the_one_of_the_machine(postgres_server):
    with psycopg.connect(postgres_server.url) as connection:
        assert connection.execute("SHOW data_directory").fetchone()[0].startswith(str(postgres_server.sockets.parent))

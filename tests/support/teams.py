"""A schema of its own for a test, in the PostgreSQL server of the test run."""

from __future__ import annotations

import os

from kept.config.search_settings import StoreSettings
from kept.postgres.database import Database
from kept.postgres.open_database import close_databases, open_database
from kept.postgres.schema_migrations import migrate
from tests.support.postgres_server import PostgresServer

_FILLED_TABLES = """
SELECT oid::regclass::text, pg_relation_size(oid) FROM pg_class
 WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0
   AND relname NOT IN ('schema_versions', 'token_version')
"""
_SMALL_BYTES = 2_000_000
"""Up to this size, deleting rows is quicker than new files for tables and indexes."""


class Team:
    """A schema with the tables of Kept, unless ``create`` is False."""

    def __init__(self, server: PostgresServer, *, create: bool = True, schema: str | None = None) -> None:
        self.server = server
        self.schema = schema or f"team_{os.urandom(6).hex()}"
        self.settings = StoreSettings(driver="postgres", url=server.url, schema=self.schema)
        names = {"driver": "postgres", "url": server.url, "schema": self.schema}
        self.options = {f"memory_search.store.{name}": value for name, value in names.items()}
        """Settings that choose the store, for `load_config` and `Memory.open`."""
        self.environment = {f"KEPT_MEMORY_SEARCH__STORE__{name.upper()}": value for name, value in names.items()}
        if create:
            migrate(self.database, create=True)

    @property
    def database(self) -> Database:
        return open_database(self.settings)

    def end_connections(self) -> int:
        """End every connection of the team, as a restart of the server or a failover does. Return their number."""
        with self.server.connect() as connection:
            rows = connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s",
                [f"kept {self.schema}"[:63]],
            ).fetchall()
        return len(rows)

    def clear(self) -> None:
        """Empty all tables, which is cheaper than a new schema."""
        with self.database.writing() as connection:
            tables = connection.execute(_FILLED_TABLES).fetchall()
            if sum(size for _, size in tables) > _SMALL_BYTES:
                connection.execute(f"TRUNCATE {', '.join(name for name, _ in tables)} CASCADE")
            elif tables:
                connection.execute("; ".join(f"DELETE FROM {name}" for name, _ in tables))

    def close(self) -> None:
        close_databases()
        self.server.drop_schema(self.schema)


def find_traces(team: Team, word: str) -> list[str]:
    """Return the tables and indexes of a schema that have a word in a row, or in their files."""
    traces = [word.encode(), word.encode().hex().encode()]  # values of type bytea are shown in hexadecimal
    names: list[str] = []
    with team.server.connect() as connection:
        connection.execute("CHECKPOINT")
        relations = connection.execute(
            "SELECT c.oid::regclass::text, relkind = 'r', c.oid, reltoastrelid FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %s AND relkind IN ('r', 'i')",
            [team.schema],
        ).fetchall()
        for name, is_table, *files in relations:
            read = "SELECT pg_read_binary_file(pg_relation_filepath(%s))"
            texts = [connection.execute(read, [oid]).fetchone()[0] for oid in files if oid]
            if is_table:
                texts += [row.encode() for (row,) in connection.execute(f"SELECT t::text FROM {name} t")]
            if any(trace in text for trace in traces for text in texts):
                names.append(name.removeprefix(f"{team.schema}."))
        query = "SELECT tablename, s::text FROM pg_stats s WHERE schemaname = %s"
        for name, text in connection.execute(query, [team.schema]).fetchall():
            if any(trace in text.encode() for trace in traces):
                names.append(f"statistics of {name}")
    return sorted(names)

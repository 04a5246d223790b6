"""A schema of its own for a test, in the PostgreSQL server of the test run."""

from __future__ import annotations

import os

from kept.config.search_settings import StoreSettings
from kept.postgres.database import Database
from kept.postgres.open_database import close_databases, open_database
from kept.postgres.schema_migrations import migrate
from tests.support.postgres_server import PostgresServer


class Team:
    """A schema with the tables of Kept, unless ``create`` is False."""

    def __init__(self, server: PostgresServer, *, create: bool = True, schema: str | None = None) -> None:
        self.server = server
        self.schema = schema or f"team_{os.urandom(6).hex()}"
        self.settings = StoreSettings(driver="postgres", url=server.url, schema=self.schema)
        self.environment = {
            "KEPT_MEMORY_SEARCH__STORE__DRIVER": "postgres",
            "KEPT_MEMORY_SEARCH__STORE__URL": server.url,
            "KEPT_MEMORY_SEARCH__STORE__SCHEMA": self.schema,
        }
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

    def forget_embeddings(self) -> None:
        """Empty the cache that all workspaces share, for a test that counts what is embedded."""
        with self.database.writing() as connection:
            connection.execute("DELETE FROM embedding_cache")

    def close(self) -> None:
        close_databases()
        self.server.drop_schema(self.schema)

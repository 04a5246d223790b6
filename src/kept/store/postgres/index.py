"""The index of one workspace in a team's database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg

from kept.errors import LockBusy, StoreBusy, StoreDamaged, StoreUnavailable
from kept.postgres.database import Connection, Database
from kept.store.postgres.embeddings import PostgresEmbeddings
from kept.store.postgres.generation import TABLES, PostgresGeneration
from kept.store.postgres.index_session import IndexSession
from kept.store.postgres.stems import Stemmer
from kept.store.postgres.storable import storable
from kept.store.postgres.words import PostgresWords
from kept.store.rows import META_RECIPE, SCHEMA_VERSION
from kept.store.vector_scan import VectorLimits

if TYPE_CHECKING:
    from kept.store.integrity import Finding

_META_SCHEMA = "schema"
_MAY_WRITE = "has_table_privilege('chunks', 'INSERT') AND NOT pg_is_in_recovery()"
_GENERATION_BITS = 32
_LOCK_NUMBER = "hashtextextended(%s, 0)"
QUICK_CHECK_CHUNKS = 20_000
"""Up to this size, every sync that a user asks for checks the sums of the index."""


class PostgresIndex:
    """An open index. Threads that share it need a lock of their own."""

    batch_scale = 8
    """A transaction adds a row for each of its stems, which a merge replaces: many small ones would leave three times
    as much space unused, and take longer."""

    def __init__(self, database: Database, name: str, vector_limits: VectorLimits | None = None) -> None:
        self.database = database
        self.name = storable(name)
        self.path = f"postgresql:{database.schema}/{self.name}"
        self._limits = vector_limits
        self._stemmer = Stemmer()
        workspace, self._may_write = _claim(database, self.name)
        self._session = IndexSession(database, workspace, self.path)
        self.live = PostgresGeneration(self._session, self._stemmer, limits=vector_limits)
        self.cache = PostgresEmbeddings(self._session)
        if self._session.live_or_none is None or self.get_meta(_META_SCHEMA) != SCHEMA_VERSION:
            self._create_first_generation()

    @cached_property
    def words(self) -> PostgresWords:
        return PostgresWords(self._session, self._stemmer)

    @property
    def why_read_only(self) -> StoreUnavailable | None:
        """The reason if the role of this machine may only read. Its rights are read again, since they may change."""
        if not self._may_write:
            self._may_write = bool(self._session.fetch_alone(f"SELECT {_MAY_WRITE}")[0][0])
        return None if self._may_write else _read_only("This machine indexes nothing")

    def _create_first_generation(self) -> None:
        """Create a generation, or replace one of another schema, which cannot be read. Embeddings stay."""
        if not self._may_write:
            raise _read_only(f"The workspace {self.name} is not indexed")
        with self.writing():
            if self._session.live_or_none is not None and self.get_meta(_META_SCHEMA) == SCHEMA_VERSION:
                return
            self.start_over()
            self.put_meta(_META_SCHEMA, SCHEMA_VERSION)

    def start_over(self) -> None:
        """Make an empty generation live, inside the caller's transaction. Embeddings stay."""
        self._session.set_live(self._add_generation())

    def _add_generation(self) -> int:
        query = "INSERT INTO generations (workspace) VALUES (%s) RETURNING id"
        return int(self._session.fetch_written(query, [self._session.workspace])[0][0])

    def save_codes(self, *, now_s: int) -> None:
        """Put the vectors of chunks into the cache, which may hold fewer, inside the caller's transaction."""
        if identity := self.stored_identity():
            self._session.execute(
                "INSERT INTO embedding_cache (identity, hash, code, used_at)"
                " SELECT DISTINCT ON (c.embed_hash) %s, c.embed_hash, v.code, %s::bigint FROM chunks c"
                " JOIN chunk_vectors v USING (generation, row) WHERE c.generation = %s ORDER BY c.embed_hash"
                " ON CONFLICT (identity, hash) DO NOTHING",
                [identity, now_s, self._session.live],
            )

    def close(self) -> None:
        """Forget what is in memory. The connections belong to the process."""
        self.__dict__.pop("words", None)

    def is_current(self) -> bool:
        """Return whether the index is still in the database. A workspace that was removed is created again."""
        return True  # every transaction finds out

    def reading(self) -> Any:
        return self._session.reading()

    def writing(self) -> Any:
        return self._session.writing()

    @contextmanager
    def indexing(self, *, wait_s: float) -> Iterator[None]:
        """Keep other processes of all machines from indexing the workspace. Raise LockBusy after ``wait_s``."""
        key = [f"kept index {self.database.schema} {self._session.workspace}"]
        with self.database.statement() as connection:
            if not _asks(connection, f"SELECT pg_try_advisory_lock({_LOCK_NUMBER})", key):
                self._wait_for_lock(connection, key, wait_s)
            try:
                yield
            finally:
                try:
                    connection.execute(f"SELECT pg_advisory_unlock({_LOCK_NUMBER})", key)
                except psycopg.Error:
                    connection.close()  # with it, the lock is gone as well

    def _wait_for_lock(self, connection: Connection, key: list[str], wait_s: float) -> None:
        """Let the server wait for the process that is indexing. Raise LockBusy after ``wait_s``."""
        limits = "SELECT set_config('lock_timeout', %s, true), set_config('statement_timeout', '0', true)"
        connection.execute("BEGIN")  # the limits end with the transaction, and the lock does not
        try:
            connection.execute(limits, [f"{1 + max(0, round(wait_s * 1000))}ms"])
            connection.execute(f"SELECT pg_advisory_lock({_LOCK_NUMBER})", key)
            connection.execute("COMMIT")
        except psycopg.errors.LockNotAvailable:
            connection.execute("ROLLBACK")
            raise LockBusy(f"{self.path}: another process is indexing.") from None
        except BaseException:
            connection.close()  # also a wait that is interrupted must not end in a lock that nobody releases
            raise

    # meta

    def get_meta(self, key: str) -> Any:
        query = "SELECT value FROM workspace_meta WHERE workspace = %s AND key = %s"
        rows = self._session.fetch_alone(query, [self._session.workspace, key])
        try:
            return json.loads(rows[0][0]) if rows else None
        except ValueError as exc:
            raise StoreDamaged(f"{self.path}: the index is damaged (meta.{key} cannot be read).") from exc

    def put_meta(self, key: str, value: Any) -> None:
        """Store a value, inside the caller's transaction."""
        self._session.execute(
            "INSERT INTO workspace_meta (workspace, key, value) VALUES (%s, %s, %s)"
            " ON CONFLICT (workspace, key) DO UPDATE SET value = excluded.value",
            [self._session.workspace, key, json.dumps(value)],
        )

    def stored_identity(self) -> str | None:
        """Return the identity of the embedder whose vectors the index holds."""
        recipe = self.get_meta(META_RECIPE) or {}
        identity: str | None = recipe.get("identity")
        return identity

    def generation_number(self) -> int:
        """Return a number that is another one for each generation, and after each start of the server."""
        live = self._session.live
        return (self._session.server_start << _GENERATION_BITS) | live

    # rebuilding

    def begin_generation(self) -> PostgresGeneration:
        """Return an empty generation beside the live one. Those of interrupted rebuilds are dropped."""
        self.drop_leftovers()
        with self.writing():
            number = self._add_generation()
        return PostgresGeneration(self._session, self._stemmer, number, self._limits)

    def switch_to(self, building: PostgresGeneration) -> None:
        """Make a generation live, inside the caller's transaction. Readers see the old one until it commits."""
        if self._session.fetch_value("SELECT 1 FROM generations WHERE id = %s", [building.number]) is None:
            raise StoreBusy(f"{self.path}: another process has begun to index the same workspace.")
        self._session.set_live(building.number)

    def drop_leftovers(self) -> None:
        """Remove generations that are not live."""
        query = "SELECT id FROM generations WHERE workspace = %s AND id <> %s"
        for (number,) in self._session.fetch(query, [self._session.workspace, self._session.live]):
            with self.writing():
                for table in TABLES:
                    self._session.execute(f"DELETE FROM {table} WHERE generation = %s", [number])
                self._session.execute("DELETE FROM generations WHERE id = %s", [number])

    def size_bytes(self) -> int:
        """Return the size of what the tables hold for this workspace, without their indexes."""
        columns = {
            "chunks": "octet_length(text) + octet_length(heading) + octet_length(stems) + 160",
            "postings": "octet_length(entries) + octet_length(stem) + 40",
            "vector_packs": "octet_length(codes) + octet_length(bits) + octet_length(rows)",
        }
        sums = (
            f"(SELECT coalesce(sum({size}), 0) FROM {table} WHERE generation = %(g)s)"
            for table, size in columns.items()
        )
        query = f"SELECT ({' + '.join(sums)})::bigint"
        return int(self._session.fetch_value(query, {"g": self._session.live}))

    # checks

    def find_damage(self) -> list[Finding]:
        from kept.store.postgres.integrity import check_generation

        with self.reading():
            return check_generation(self.live)

    def check_if_quick(self) -> None:
        """Raise StoreDamaged if the sums of a small index are wrong."""
        from kept.store.postgres.integrity import check_sums

        with self.reading():
            if self.live.count_chunks() > QUICK_CHECK_CHUNKS:
                return
            problems = check_sums(self.live)
        if problems:
            raise StoreDamaged(f"{self.path}: the index is damaged ({problems[0].problem}).")

    def describe_checks(self) -> str:
        server = self._session.fetch_value("SHOW server_version")
        return f"on PostgreSQL {server}"


def remove_index(database: Database, name: str) -> None:
    """Delete the index of a workspace. Notes are not affected."""
    with database.writing(timeout_s=600.0) as connection:
        query = "SELECT g.id FROM generations g JOIN workspaces w ON w.id = g.workspace WHERE w.name = %s"
        numbers = [number for (number,) in connection.execute(query, [storable(name)]).fetchall()]
        for table in TABLES:
            connection.execute(f"DELETE FROM {table} WHERE generation = ANY(%s)", [numbers])
        connection.execute("DELETE FROM workspaces WHERE name = %s", [storable(name)])


def _asks(connection: Connection, query: LiteralString, values: list[str]) -> bool:
    row = connection.execute(query, values).fetchone()
    return bool(row and row[0])


def _claim(database: Database, name: str) -> tuple[int, bool]:
    """Return the number of a workspace, which is created if it is new, and whether this role may write."""
    with database.statement() as connection:
        query = f"SELECT {_MAY_WRITE}, (SELECT id FROM workspaces WHERE name = %s)"
        may_write, number = connection.execute(query, [name]).fetchone() or (False, None)
    if number is None and not may_write:
        raise _read_only(f"The workspace {name} is not indexed")
    if number is None:
        with database.writing() as connection:
            connection.execute("INSERT INTO workspaces (name) VALUES (%s) ON CONFLICT (name) DO NOTHING", [name])
            row = connection.execute("SELECT id FROM workspaces WHERE name = %s", [name]).fetchone()
        number = row[0] if row else None
    if number is None:
        raise StoreBusy(f"The workspace {name} was removed from the database a moment ago.")
    return int(number), bool(may_write)


def _read_only(consequence: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{consequence}: its role may only read the team's database.",
        hint="Let a machine that may write index the workspace, or ask for 'kept store grant ROLE'.",
    )

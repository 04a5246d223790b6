"""`PostgresIndex`: the index of one workspace in a database, with the methods of `index.sqlite.Index`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kept.base.values import frozen
from kept.errors import StoreError
from kept.index.postgres.embeddings import PostgresEmbeddings
from kept.index.postgres.generation import PostgresGeneration
from kept.index.postgres.words import PostgresWords
from kept.index.sqlite.rows import META_RECIPE, SCHEMA_VERSION
from kept.storage.postgres.database import Database, DeadlineConnection, translated_errors

if TYPE_CHECKING:
    from psycopg import Copy

    from kept.storage.contract import Storage

# Lease of a workspace that whoever indexes it holds.
INDEX_LEASE = "index"
_META_SCHEMA = "schema"
_STATE = (
    "SELECT i.id, i.live, i.version, i.meta, s.chunks, s.text_words, s.all_words"
    " FROM kept.indexes i JOIN kept.spaces s ON s.id = i.live WHERE i.name = %(name)s"
)
_CREATE = (
    "WITH i AS (INSERT INTO kept.indexes (name, meta) VALUES (%(name)s, %(meta)s) ON CONFLICT (name) DO NOTHING"
    " RETURNING id), s AS (INSERT INTO kept.spaces (index) SELECT id FROM i RETURNING id, index)"
    " SELECT id, index FROM s"
)


@frozen
class IndexState:
    """What every search needs to know, read with one statement."""

    id: int
    space: int
    version: int
    meta: Mapping[str, Any]
    chunks: int
    text_words: int
    all_words: int


class PostgresIndex:
    """Threads that share it need a lock of their own, as with SQLite. Reads are statements of their own; what is
    written between two of them is seen by the number of the version."""

    why_read_only: StoreError | None = None

    def __init__(self, database: Database, name: str, storage: Storage) -> None:
        """``storage`` is that of the workspace, whose lease lets one process at a time index it."""
        self.database, self.name = database, name
        self.path = f"index of {name}"
        self._storage = storage
        self._state: IndexState | None = None
        self._writing = threading.local()
        self.live = PostgresGeneration(self)
        self.words = PostgresWords(self)
        self.cache = PostgresEmbeddings(self)

    # the state

    @property
    def state(self) -> IndexState:
        return self._state or self.refresh()

    def refresh(self) -> IndexState:
        """Read the state, which others may have changed."""
        rows = self.run(_STATE, name=self.name)
        if not rows or rows[0][3].get(_META_SCHEMA) != SCHEMA_VERSION:
            self._create(is_new=not rows)
            rows = self.run(_STATE, name=self.name)
        self._state = IndexState(*rows[0])
        return self._state

    def _create(self, *, is_new: bool) -> None:
        with self._transaction():
            if is_new:
                spaces = self.run(_CREATE, name=self.name, meta=json.dumps({_META_SCHEMA: SCHEMA_VERSION}))
                for space, index in spaces:  # none if another process was faster
                    self.run_many("UPDATE kept.indexes SET live = %(s)s WHERE id = %(i)s", [{"s": space, "i": index}])
                return
            # Tables of another version of Kept: a new space, and nothing of what the old one was made with.
            values = {"name": self.name, "meta": json.dumps({_META_SCHEMA: SCHEMA_VERSION})}
            self.run_many(
                "WITH s AS (INSERT INTO kept.spaces (index) SELECT id FROM kept.indexes WHERE name = %(name)s"
                " RETURNING id) UPDATE kept.indexes SET live = s.id, meta = %(meta)s FROM s WHERE name = %(name)s",
                [values],
            )

    def close(self) -> None:
        """Leave the connections open: other indexes of the database use them too."""

    def is_current(self) -> bool:
        return True

    # statements

    def run(self, query: str, **values: Any) -> list[Any]:
        """Run a statement and return its rows: in the transaction that is under way in this thread, or on its own."""
        connection = self._connection()
        if connection is None:
            return self.database.query(query, **values)
        with translated_errors():
            return connection.execute(self.database.sql(query), values).fetchall()

    def run_many(self, query: str, values: Sequence[Mapping[str, Any] | Sequence[Any]]) -> None:
        """Run a statement that returns nothing once for each of the values, inside `writing`."""
        if values:
            with translated_errors(), self._writer().cursor() as cursor:
                cursor.executemany(self.database.sql(query), values)

    @contextmanager
    def copying(self, query: str) -> Iterator[Copy]:
        with translated_errors(), self._writer().cursor() as cursor, cursor.copy(self.database.sql(query)) as copy:
            yield copy

    def _connection(self) -> DeadlineConnection | None:
        return getattr(self._writing, "connection", None)

    def _writer(self) -> DeadlineConnection:
        connection = self._connection()
        if connection is None:
            raise RuntimeError("The index is written inside writing() only.")
        return connection

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self.database.connection() as connection, connection.transaction():
            self._writing.connection = connection
            try:
                yield
            finally:
                self._writing.connection = None

    @contextmanager
    def reading(self) -> Iterator[None]:
        if self._connection() is None:
            self._state = None  # others may have written
        yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        index = self.state.id
        try:
            with self._transaction():
                yield
                self.run_many("UPDATE kept.indexes SET version = version + 1 WHERE id = %(id)s", [{"id": index}])
        finally:
            self._state = None

    @contextmanager
    def indexing(self, *, wait_s: float) -> Iterator[None]:
        """Keep other processes from indexing. Raise LockBusy if one still does so after ``wait_s``."""
        with self._storage.lease(INDEX_LEASE, wait_s=wait_s):
            self._state = None
            yield

    # meta

    def get_meta(self, key: str) -> Any:
        if self._connection() is not None:  # inside a transaction, which may have changed it
            return self.run(_STATE, name=self.name)[0][3].get(key)
        return self.state.meta.get(key)

    def put_meta(self, key: str, value: Any) -> None:
        """Store a value, inside the caller's transaction."""
        self.run_many(
            "UPDATE kept.indexes SET meta = meta || %(meta)s::jsonb WHERE name = %(name)s",
            [{"name": self.name, "meta": json.dumps({key: value})}],
        )

    def stored_identity(self) -> str | None:
        """Return the identity of the embedder whose vectors the index holds."""
        identity: str | None = (self.get_meta(META_RECIPE) or {}).get("identity")
        return identity

    def generation_number(self) -> int:
        return self.state.space

    # rebuilding

    def begin_generation(self) -> PostgresGeneration:
        """Return an empty space beside the live one. Those of an interrupted rebuild are dropped."""
        self.drop_leftovers()
        rows = self.run("INSERT INTO kept.spaces (index) VALUES (%(index)s) RETURNING id", index=self.state.id)
        return PostgresGeneration(self, rows[0][0])

    def switch_to(self, building: PostgresGeneration) -> None:
        """Make a space live, inside the caller's transaction. Readers see the old one until it commits."""
        self.run_many(
            "UPDATE kept.indexes SET live = %(space)s WHERE name = %(name)s",
            [{"space": building.space, "name": self.name}],
        )

    def drop_leftovers(self) -> None:
        """Delete the spaces that are not live."""
        self.run(
            "DELETE FROM kept.spaces WHERE index = %(i)s AND id <> %(s)s RETURNING 1",
            i=self.state.id,
            s=self.state.space,
        )

    # checks

    def find_damage(self) -> list[str]:
        """Return what is wrong with the index: counts that are not those of its rows. Reads all of it."""
        space = self.state.space
        stems = self.run(
            "SELECT count(*) FROM (SELECT id, count(*) AS docs FROM kept.chunks c, unnest(c.stems) AS t (id)"
            " WHERE c.space = %(space)s GROUP BY id) f FULL JOIN (SELECT id, docs FROM kept.stems"
            " WHERE space = %(space)s AND docs > 0) s USING (id) WHERE f.docs IS DISTINCT FROM s.docs",
            space=space,
        )[0][0]
        totals = self.run(
            "SELECT count(*), coalesce(sum(cardinality(words)), 0),"
            " coalesce(sum(cardinality(words) + cardinality(context)), 0) FROM kept.chunks WHERE space = %(space)s",
            space=space,
        )[0]
        state = self.refresh()
        problems = [f"{stems} stems are counted wrongly"] if stems else []
        if totals != (state.chunks, state.text_words, state.all_words):
            problems.append("the totals are not those of the chunks")
        return problems

    def check_if_quick(self) -> None:
        """Do nothing: the server checks its pages."""

    def size_bytes(self) -> int:
        """Return about how many bytes the chunks and their vectors take."""
        rows = self.run(
            "SELECT coalesce(sum(pg_column_size(c.*)), 0) FROM kept.chunks c WHERE c.space = %(space)s",
            space=self.state.space,
        )
        return int(rows[0][0])

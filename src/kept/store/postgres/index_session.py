"""The transactions of one index, and the state that each of them sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from psycopg import Cursor

from kept.errors import StoreDamaged
from kept.postgres.database import SERVER_START, Connection, Database

Values = Sequence[Any] | Mapping[str, Any]
_WRITE_TIMEOUT_S = 600.0
"""Limit of a statement that writes: merging the words of a large workspace takes a while."""


class IndexSession:
    """Runs statements in the transaction that is open, or each in one of its own."""

    def __init__(self, database: Database, workspace: int, name: str) -> None:
        self.database = database
        self.workspace = workspace
        self.name = name
        self._cursor: Cursor[tuple[Any, ...]] | None = None
        self._is_writing = False
        self._live: int | None = None
        self._version = 0
        self.server_start = 0
        """When the server was started. Another one may use the numbers of segments and packs again."""
        self._writes = 0
        """Statements that wrote in the open transaction: what was worked out before them no longer holds."""

    # transactions

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Run several reads that see one state."""
        if self._cursor is not None:
            yield
            return
        with self.database.reading() as connection, self._using(connection):
            self._read_state(f"SELECT live, version, {SERVER_START} FROM workspaces WHERE id = %s")
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Run a transaction that writes. It holds the row of the workspace, so there is one at a time."""
        with self.database.writing(timeout_s=_WRITE_TIMEOUT_S) as connection, self._using(connection):
            self._is_writing = True
            self._read_state(
                f"UPDATE workspaces SET version = version + 1 WHERE id = %s RETURNING live, version, {SERVER_START}"
            )
            yield

    @contextmanager
    def _using(self, connection: Connection) -> Iterator[None]:
        self._cursor = connection.cursor(binary=True)
        try:
            yield
        finally:
            self._cursor, self._is_writing = None, False

    def _read_state(self, query: str) -> None:
        row = self._get_cursor().execute(query, [self.workspace]).fetchone()
        if row is None:
            raise StoreDamaged(f"{self.name}: the index was removed from the database.")
        self._live, self._version, self.server_start = row
        self._writes = 0

    # statements

    def _get_cursor(self) -> Cursor[tuple[Any, ...]]:
        if self._cursor is None:
            raise StoreDamaged(f"{self.name}: no transaction is open.")
        return self._cursor

    def fetch(self, query: str, values: Values = ()) -> list[Any]:
        """Return the rows of a query."""
        if self._cursor is None:
            with self.reading():
                return self.fetch(query, values)
        return self._cursor.execute(query, values).fetchall()

    def fetch_alone(self, query: str, values: Values = ()) -> list[Any]:
        """Return the rows of a query that reads nothing of a generation: it needs no transaction."""
        if self._cursor is not None:
            return self.fetch(query, values)
        with self.database.statement() as connection:
            return connection.execute(query, values).fetchall()

    def fetch_value(self, query: str, values: Values = ()) -> Any:
        """Return the first value of the first row, or None."""
        rows = self.fetch(query, values)
        return rows[0][0] if rows else None

    def execute(self, query: str, values: Values = ()) -> None:
        """Run a statement that writes, inside the caller's transaction."""
        self._writes += 1
        self._get_cursor().execute(query, values)

    def fetch_written(self, query: str, values: Values = ()) -> list[Any]:
        """Run a statement that writes and returns rows, inside the caller's transaction."""
        self._writes += 1
        return self._get_cursor().execute(query, values).fetchall()

    def copy(self, table: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> None:
        """Add rows to a table, inside the caller's transaction. Columns have names and types."""
        if not rows:
            return
        self._writes += 1
        names = ", ".join(name for name, _ in columns)
        statement = f"COPY {table} ({names}) FROM STDIN (FORMAT BINARY)"
        with self._get_cursor().copy(statement) as copy:
            copy.set_types([kind for _, kind in columns])
            for row in rows:
                copy.write_row(row)

    # state

    @property
    def live(self) -> int:
        """The generation that searches read."""
        if self._cursor is None:
            with self.reading():
                return self.live
        if self._live is None:
            raise StoreDamaged(f"{self.name}: the index has no tables.")
        return self._live

    def set_live(self, generation: int) -> None:
        self.execute("UPDATE workspaces SET live = %s WHERE id = %s", [generation, self.workspace])
        self._live = generation

    @property
    def live_or_none(self) -> int | None:
        with self.reading():
            return self._live

    def state(self) -> tuple[int, int, int, int]:
        """Return numbers that change with the index."""
        if self._cursor is None:
            with self.reading():
                return self.state()
        return self.live, self._version, self.server_start, self._writes if self._is_writing else -1

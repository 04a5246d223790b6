"""Connections and transactions of a team's database.

A `Database` opens its pool on first use. Connections that are lost are replaced: the transaction that was under way
fails with StoreUnreachable, and the next one gets a new connection.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from kept.errors import StoreBusy, UsedAfterClose
from kept.forking import DatabaseLock, forget_connection, register_forkable, require_usable
from kept.postgres.database_errors import translate, translated
from kept.postgres.schema_migrations import check_versions, set_search_path

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

CONNECT_TIMEOUT_S = 5
WAIT_S = 15.0
"""Longest wait for a free connection."""
STATEMENT_TIMEOUT_S = 30.0
IDLE_TIMEOUT_S = 300.0
"""Limit of an open transaction that runs no statement: a process that hangs must not hold its locks for ever."""
SERVER_START = "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"
"""When the server was started, in SQL. Another one may lack the last transactions of the one before, after a failover,
and uses their numbers again. So nothing that a process has read holds any more."""
_MAX_IDLE_S = 300.0
_POLL_S = 0.1
_NETWORK_LIMITS: dict[str, int] = {
    # A machine that vanishes without a word is noticed within ten seconds, and by whoever asks it within five.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": 5_000,
}
_SETTINGS = """
SELECT set_config('statement_timeout', %s, false),
       set_config('idle_in_transaction_session_timeout', %s, false),
       set_config('client_min_messages', 'warning', false),
       set_config('jit', 'off', false),
       set_config('tcp_keepalives_idle', '10', false),
       set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false)
"""
"""The server, too, notices within half a minute that a machine has vanished. Otherwise that takes it hours, for which
nobody else gets the locks of that machine, such as the one for indexing."""

# The pool logs every failed attempt to connect. Callers get the failure as an error.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


class Database:
    """Tables of one team: a schema in a PostgreSQL database. Several threads may use it."""

    def __init__(self, url: str, schema: str, *, max_connections: int = 8) -> None:
        self.schema = schema
        self.max_connections = max_connections
        self._url = url
        self._lock = DatabaseLock()
        self._pool: ConnectionPool[Connection] | None = None
        self._failure: tuple[float, psycopg.Error] | None = None
        """The last attempt to connect that failed, and its time."""
        self._is_checked = False
        self._is_closed = False
        register_forkable(self)

    def __repr__(self) -> str:
        return f"Database(schema={self.schema!r})"

    def after_fork(self) -> None:
        """Drop the pool of the parent. Closing its connections here would end them there."""
        if self._pool is not None:
            forget_connection(self._pool)
        self._pool, self._is_checked = None, False

    def close(self) -> None:
        with self._lock:
            pool, self._pool, self._is_closed = self._pool, None, True
        if pool is not None:
            pool.close()

    # transactions

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Run several reads that see one state of the database."""
        self._check()
        with self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as connection:
            yield connection

    @contextmanager
    def writing(self, *, timeout_s: float | None = None, idle_s: float | None = None) -> Iterator[Connection]:
        """Run a transaction. ``timeout_s`` is the limit of each of its statements, and ``idle_s`` of the time between
        two of them, if they are other than usual."""
        self._check()
        with self._transaction("BEGIN", timeout_s=timeout_s, idle_s=idle_s) as connection:
            yield connection

    @contextmanager
    def unchecked(self, *, timeout_s: float | None = None) -> Iterator[Connection]:
        """Run a transaction on a schema of any version, or none. For setting up and migrating."""
        with self._transaction("BEGIN", timeout_s=timeout_s) as connection:
            yield connection

    @contextmanager
    def statement(self) -> Iterator[Connection]:
        """Lend a connection for a single statement that needs no transaction."""
        self._check()
        with self._connection() as connection:
            yield connection

    @contextmanager
    def session(self, *, connect_timeout_s: int = CONNECT_TIMEOUT_S) -> Iterator[Connection]:
        """Open a connection outside the pool and outside a transaction, for LISTEN. It is closed afterwards."""
        require_usable()
        with translated(hidden=(self._url,)):
            options = {**self._connection_options(), "connect_timeout": connect_timeout_s}
            connection = psycopg.connect(self._url, **options)
            try:
                self._configure(connection)
                if not self._is_checked:
                    check_versions(connection, self.schema)
                    self._is_checked = True
                yield connection
            finally:
                connection.close()

    @contextmanager
    def _transaction(
        self, begin: str, *, timeout_s: float | None = None, idle_s: float | None = None
    ) -> Iterator[Connection]:
        limits = {"statement_timeout": timeout_s, "idle_in_transaction_session_timeout": idle_s}
        settings = [
            f"SET LOCAL {name} = {limit_s * 1000:.0f}" for name, limit_s in limits.items() if limit_s is not None
        ]
        with self._connection() as connection:
            connection.execute("; ".join((begin, *settings)).encode())  # together, which saves a way to the server
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:  # also KeyboardInterrupt: locks must not stay
                _roll_back(connection)
                raise

    def _check(self) -> None:
        """Refuse a schema that this program does not know. Asked once, here or in a session."""
        if self._is_checked:
            return
        with self.unchecked() as connection:
            check_versions(connection, self.schema)
        self._is_checked = True

    # connections

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        with translated(hidden=(self._url,)):
            pool = self._open_pool()
            connection = self._take(pool)
            try:
                yield connection
            finally:
                pool.putconn(connection)

    def _take(self, pool: ConnectionPool[Connection]) -> Connection:
        """Return a connection that works. Fail at once if the database refuses one, and not after the whole wait."""
        began = time.monotonic()
        while True:
            try:
                return pool.getconn(timeout=_POLL_S)
            except PoolTimeout:
                failure = self._failure
                if failure is not None and failure[0] >= began:
                    raise translate(failure[1], hidden=(self._url,)) from None
                if time.monotonic() - began > WAIT_S:
                    raise StoreBusy(
                        f"All {self.max_connections} connections to the database are in use.",
                        hint="Try again, or raise memory_search.store.max_connections.",
                    ) from None

    def _open_pool(self) -> ConnectionPool[Connection]:
        require_usable()
        with self._lock:
            if self._is_closed:
                raise UsedAfterClose("The database was closed.")
            if self._pool is None:
                self._pool = ConnectionPool(
                    self._url,
                    connection_class=self._connection_class(),
                    kwargs=self._connection_options(),
                    min_size=0,
                    max_size=self.max_connections,
                    max_idle=_MAX_IDLE_S,
                    configure=self._configure,
                    check=ConnectionPool.check_connection,
                    reconnect_timeout=0.0,  # the next caller tries again, and gets the reason if that fails
                    name="kept",
                    open=False,
                )
                self._pool.open()
            return self._pool

    def _connection_options(self) -> dict[str, Any]:
        return {
            "autocommit": True,  # transactions are begun with what they need
            "application_name": f"kept {self.schema}",
            "connect_timeout": CONNECT_TIMEOUT_S,
            **_NETWORK_LIMITS,
        }

    def _connection_class(self) -> type[Connection]:
        """Return a class of connections that records why one could not be made, which the pool only logs."""
        database = self

        class TracedConnection(psycopg.Connection[tuple[Any, ...]]):
            @classmethod
            def connect(cls, *args: Any, **kwargs: Any) -> Any:
                try:
                    return super().connect(*args, **kwargs)
                except psycopg.Error as exc:
                    database._failure = (time.monotonic(), exc)
                    raise

        return TracedConnection

    def _configure(self, connection: Connection) -> None:
        set_search_path(connection, self.schema)
        connection.execute(_SETTINGS, [str(round(limit_s * 1000)) for limit_s in (STATEMENT_TIMEOUT_S, IDLE_TIMEOUT_S)])


def _roll_back(connection: Connection) -> None:
    """End the transaction. A connection that cannot do that is replaced by the pool."""
    try:
        connection.execute("ROLLBACK")
    except psycopg.Error:
        connection.close()

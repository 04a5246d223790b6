"""`Database`: connections to PostgreSQL, with a deadline for every call, one schema, and its migrations.

SQL is written with the schema `kept`, and gets the real one when it runs. A schema is a wall: who must not trust each
other has another schema with a role of its own, or another database.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import resources
from typing import Any, ClassVar, Self, TypeVar

import psycopg
import psycopg.conninfo
from psycopg import errors as pg
from psycopg.abc import PQGen
from psycopg_pool import ConnectionPool, PoolTimeout

from kept.errors import DatabaseBusy, DatabaseError, DatabaseRefused, DatabaseTooNew, DatabaseUnreachable, KeptError

Row = tuple[Any, ...]
_Result = TypeVar("_Result")

DEADLINE_S = 30.0
"""For every answer of the server. Its own timeouts do not fire while it is frozen, nor TCP's while its kernel lives."""
CONNECT_S = 5
WAIT_S = 15.0
"""For a free connection."""
LOCK_TIMEOUT_S = 2.0
MIGRATION_TRIES = 10
_IDLE_S = 300.0
_PROBE = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 2, "tcp_user_timeout": 5_000}
# The pool reports to it what the caller is told as an error.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
_SCHEMA = re.compile(r"\bkept\.")
_ADDRESS = re.compile(r".*connection (?:to server )?(?:at|on socket) .*? failed: ")
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TOLD = 200
"""Characters of the server's message that are shown."""


class DeadlineConnection(psycopg.Connection[Row]):
    """Connection that is closed if the server does not answer in time."""

    deadline_s: ClassVar[float] = DEADLINE_S

    def wait(self, gen: PQGen[_Result], interval: float = 0.1, timeout: float | None = None) -> _Result:
        try:
            return super().wait(gen, interval, self.deadline_s if timeout is None else timeout)
        except pg._WaitTimeout:
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer within {self.deadline_s:.0f} seconds") from None


class Database:
    """Safe between threads. Opens connections on first use, and anew in a forked child."""

    def __init__(self, url: str, *, schema: str = "kept", max_connections: int = 8) -> None:
        if not _NAME.fullmatch(schema):
            raise DatabaseRefused(f"'{schema}' is no name of a schema: use small letters, digits and underscores.")
        self.url, self.schema = url, schema
        self._max_connections = max_connections
        self._lock = threading.Lock()
        self._lent = threading.local()
        self._pool: ConnectionPool[DeadlineConnection] | None = None
        self._process = 0
        self._failure: KeptError | None = None
        self._statement = cache(self._name_schema)

    @classmethod
    def at(cls, address: str) -> Database:
        """Return the database at an address that may name a schema: postgresql://host/database?schema=team."""
        place, _, options = address.partition("?")
        schema, others = "kept", []
        for option in filter(None, options.split("&")):
            if option.startswith("schema="):
                schema = option.removeprefix("schema=")
            else:
                others.append(option)
        url = "?".join(filter(None, (place, "&".join(others))))
        try:
            psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError:  # whose message may quote a password
            hint = "Write it like postgresql://USER@HOST/DATABASE."
            raise DatabaseRefused("The address of the database cannot be read.", hint=hint) from None
        return cls(url, schema=schema)

    def close(self) -> None:
        with self._lock:
            if self._pool is not None and self._process == os.getpid():
                self._pool.close()
            self._pool = None

    @contextmanager
    def connection(self) -> Iterator[DeadlineConnection]:
        """Lend a connection. A thread that holds one must not take a second: a pool in use would wait for itself."""
        if getattr(self._lent, "to_this_thread", False):
            raise RuntimeError("This thread holds a connection already.")
        with translated_errors():
            pool = self._opened()
            connection = self._take(pool)
            self._lent.to_this_thread = True
            try:
                yield connection
            finally:
                self._lent.to_this_thread = False
                pool.putconn(connection)

    def sql(self, text: str) -> Any:
        """Return a statement with the schema of this installation in place of `kept`."""
        return self._statement(text)

    def query(self, text: str, **values: Any) -> list[Row]:
        """Read with one statement, once more if the connection was lost: connections that idle do not notice."""
        return self.repeat_if_lost(lambda: self._query(text, values))

    def _query(self, text: str, values: dict[str, Any]) -> list[Row]:
        with self.connection() as connection:
            return connection.execute(self.sql(text), values).fetchall()

    def repeat_if_lost(self, act: Callable[[], _Result]) -> _Result:
        """Do what may be done twice. After a lost connection, do it again with a new one."""
        try:
            return act()
        except DatabaseUnreachable:
            self._opened().drain()
            return act()

    def _name_schema(self, text: str) -> bytes:
        return _SCHEMA.sub(f"{self.schema}.", text).encode()

    def _opened(self) -> ConnectionPool[DeadlineConnection]:
        with self._lock:
            if self._pool is None or self._process != os.getpid():
                # A pool of the parent is left as it is: closing it would end the parent's connections.
                self._pool, self._process = self._make_pool(), os.getpid()
            return self._pool

    def _make_pool(self) -> ConnectionPool[DeadlineConnection]:
        settings = {"autocommit": True, "prepare_threshold": None, "connect_timeout": CONNECT_S, **_PROBE}
        return ConnectionPool(
            self.url,
            connection_class=self._connection_class(),
            kwargs={**settings, "application_name": "kept"},
            min_size=0,
            max_size=self._max_connections,
            max_idle=_IDLE_S,
            reconnect_timeout=0,  # whoever asks next tries again, and is told why it fails
            open=True,
        )

    def _connection_class(self) -> type[DeadlineConnection]:
        database = self

        class RecordingConnection(DeadlineConnection):
            """The pool logs why it cannot connect and tells its caller nothing, so that is recorded here."""

            @classmethod
            def connect(cls, *arguments: Any, **named: Any) -> Self:
                try:
                    connection = super().connect(*arguments, **named)
                except psycopg.Error as exc:
                    database._failure = describe(exc)
                    raise
                database._failure = None
                connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
                return connection

        return RecordingConnection

    def _take(self, pool: ConnectionPool[DeadlineConnection]) -> DeadlineConnection:
        """Wait for a connection in small steps, so that a server that is away is reported at once."""
        deadline = time.monotonic() + WAIT_S
        self._failure = None
        while True:
            with suppress(PoolTimeout):
                return pool.getconn(timeout=0.2)
            if self._failure is not None:
                raise self._failure
            if time.monotonic() > deadline:
                raise DatabaseBusy(f"All {self._max_connections} connections to the database are in use.")

    # migrations

    def migrate(self) -> None:
        """Bring the tables up to date. Wait for nobody longer than the lock timeout, and try again a few times."""
        for attempt in range(MIGRATION_TRIES):
            try:
                with self.connection() as connection:
                    self._migrate(connection)
                return
            except DatabaseBusy:
                if attempt == MIGRATION_TRIES - 1:
                    raise
                time.sleep(LOCK_TIMEOUT_S)

    def _migrate(self, connection: DeadlineConnection) -> None:
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S:.0f}s'".encode())
            # One lock for the whole database: schemas share extensions.
            connection.execute(b"SELECT pg_advisory_xact_lock(hashtext('kept migrations'))")
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self.schema}".encode())
            connection.execute(self.sql("CREATE TABLE IF NOT EXISTS kept.migrations (number int PRIMARY KEY)"))
            done = self._done(connection)
            for number, text in enumerate(_migrations()[done:], done + 1):
                connection.execute(self.sql(text))
                connection.execute(self.sql("INSERT INTO kept.migrations VALUES (%s)"), (number,))

    def check(self) -> None:
        """Raise unless the tables are those of this version of Kept."""
        with self.connection() as connection:
            if self._done(connection) < len(_migrations()):
                raise DatabaseRefused("The database lacks tables.", hint="'kept serve' makes them when it starts.")

    def _done(self, connection: DeadlineConnection) -> int:
        (row,) = connection.execute(self.sql("SELECT coalesce(max(number), 0) FROM kept.migrations")).fetchall()
        require_known(row[0])
        return int(row[0])


def require_known(number: int) -> None:
    """Raise DatabaseTooNew if the tables were made by a later version of Kept."""
    if number > len(_migrations()):
        raise DatabaseTooNew(f"The tables of the database are of a later version of Kept ({number}).")


@cache
def _migrations() -> list[str]:
    folder = resources.files(__package__).joinpath("migrations")
    return [file.read_text("utf-8") for file in sorted(folder.iterdir(), key=lambda file: file.name)]


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise errors of Kept for those of psycopg, without their causes: these quote rows."""
    try:
        yield
    except psycopg.Error as exc:
        raise describe(exc) from None


def describe(exc: psycopg.Error) -> KeptError:
    """Return what to tell of an error: one line of the server, without its address or any data."""
    for kinds, make in _DESCRIPTIONS:
        if isinstance(exc, kinds):
            return make(_told(exc))
    if (exc.sqlstate or "").startswith("22"):  # these quote data
        return DatabaseError(f"The database refuses a value ({exc.sqlstate}).")
    if isinstance(exc, psycopg.OperationalError | psycopg.InterfaceError):
        return DatabaseUnreachable(f"The database cannot be reached ({_told(exc)}).")
    return DatabaseError(f"The database reports: {_told(exc)}")


def _told(exc: psycopg.Error) -> str:
    """Return what the server says, or why it cannot be reached. Of several attempts, the last is reported."""
    lines = (exc.diag.message_primary or str(exc)).splitlines()
    failures = [line for line in lines if _ADDRESS.search(line)] or lines
    return _ADDRESS.sub("", failures[-1]).strip()[:_TOLD] if failures else type(exc).__name__


_DESCRIPTIONS: list[tuple[tuple[type[psycopg.Error], ...], Callable[[str], KeptError]]] = [
    ((pg.DiskFull,), lambda message: DatabaseBusy("The disk of the database is full.")),
    ((pg.TooManyConnections,), lambda message: DatabaseBusy("The database accepts no more connections.")),
    (
        (pg.QueryCanceled, pg.LockNotAvailable, pg.SerializationFailure, pg.DeadlockDetected),
        lambda message: DatabaseBusy(f"The database is busy ({message})."),
    ),
    (
        (pg.InvalidPassword, pg.InvalidAuthorizationSpecification),
        lambda message: DatabaseRefused("The database refuses the login.", hint="Check user name and password."),
    ),
    (
        (pg.InvalidCatalogName,),
        lambda message: DatabaseRefused(f"{message}.", hint="Create it, or correct the address."),
    ),
    (
        (pg.ReadOnlySqlTransaction,),
        lambda message: DatabaseUnreachable(
            "The database is a standby and cannot be written.",
            hint="Name the primary, or add target_session_attrs=read-write to the address.",
        ),
    ),
    ((pg.InsufficientPrivilege,), lambda message: DatabaseRefused(f"The database refuses: {message}.")),
    (
        (pg.UndefinedTable, pg.UndefinedColumn, pg.InvalidSchemaName),
        lambda message: DatabaseRefused("The database lacks tables.", hint="'kept serve' makes them when it starts."),
    ),
]

"""Errors of PostgreSQL as Kept's own. No message contains the address, a password or the values of a row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors as postgres_errors

from kept.errors import StoreBusy, StoreError, StoreFull, StoreUnavailable, StoreUnreachable
from kept.limits import one_line

_MAX_REASON_CHARS = 200
_BAD = "connection is bad: "
"""What psycopg puts before the reason of the server or the network."""
_INVALID_DATA = "22"
"""Class of errors whose text quotes the data."""

_Limit = postgres_errors.ProgramLimitExceeded


@contextmanager
def translated(*, hidden: tuple[str, ...] = ()) -> Iterator[None]:
    """Turn errors of PostgreSQL into Kept's. ``hidden`` are texts that a message must not contain."""
    try:
        yield
    except psycopg.Error as exc:
        raise translate(exc, hidden=hidden) from None  # the cause may quote a row


def translate(exc: psycopg.Error, *, hidden: tuple[str, ...] = ()) -> StoreError:
    reason = _reason(exc, hidden)
    match exc:
        case postgres_errors.DiskFull():
            return StoreFull("The disk of the database is full.", hint="Free some space there, and try again.")
        case postgres_errors.TooManyConnections():
            return StoreBusy(f"The database accepts no more connections: {reason}.")
        case (
            postgres_errors.QueryCanceled()
            | postgres_errors.LockNotAvailable()
            | postgres_errors.SerializationFailure()
            | postgres_errors.DeadlockDetected()
        ):
            return StoreBusy(f"The database is busy: {reason}.", hint="Try again in a moment.")
        case postgres_errors.InvalidPassword() | postgres_errors.InvalidAuthorizationSpecification():
            return StoreUnavailable(
                f"The database refuses the login: {reason}.",
                hint="Check user and password in memory_search.store.url.",
            )
        case postgres_errors.InvalidCatalogName():
            return StoreUnavailable(f"{reason}.", hint="Create it, or correct memory_search.store.url.")
        case postgres_errors.ReadOnlySqlTransaction():
            return StoreUnreachable(
                "The database is a standby and cannot be written.",
                hint="Name the primary in memory_search.store.url, or add target_session_attrs=read-write to it.",
            )
        case postgres_errors.InsufficientPrivilege():
            return StoreUnavailable(
                f"The database refuses: {reason}.", hint="Ask its administrator for the rights of the team's role."
            )
        case postgres_errors.UndefinedTable() | postgres_errors.UndefinedColumn() | postgres_errors.InvalidSchemaName():
            return StoreUnavailable(f"The database lacks tables: {reason}.", hint="Run 'kept store init'.")
        # A limit of the server is an operational error too, but the server can be reached.
        case psycopg.OperationalError() | psycopg.InterfaceError() if not isinstance(exc, _Limit):
            return StoreUnreachable(f"The database cannot be reached: {reason}.")
        case _:
            return StoreError(f"The database reports an error: {reason}.")


def _reason(exc: psycopg.Error, hidden: tuple[str, ...]) -> str:
    """Return the first line of the text, without its details: those quote rows."""
    if exc.sqlstate and exc.sqlstate.startswith(_INVALID_DATA):
        return f"SQLSTATE {exc.sqlstate}"
    lines = (exc.diag.message_primary or str(exc)).strip().splitlines()
    text = one_line(lines[0]).removeprefix(_BAD) if lines else type(exc).__name__
    for secret in filter(None, hidden):
        text = text.replace(secret, "…")
    return text[:_MAX_REASON_CHARS].rstrip(" .")

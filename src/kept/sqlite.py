"""Opening a SQLite file that is derived from others, and turning what SQLite says into errors that a person can act on.

The search index and the catalogue of sessions stand on this; what they have of their own is their tables.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import apsw

from kept.durable import make_private_folder
from kept.errors import (
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreTooNew,
    StoreUnavailable,
)
from kept.limits import is_storable

BUSY_TIMEOUT_MS = 5_000
_WAL_TRIES = 50
_CHECKSUM_VFS = "cksmvfs"
_CHECKSUM_BYTES = 8


def connect(path: str, migrations: str) -> apsw.Connection:
    """A connection, to a file that is created with its folder where there is none, brought to the current schema
    by the numbered files of a folder."""
    if not is_storable(path):
        raise StoreUnavailable(f"{path}: SQLite needs a path in UTF-8.", hint="Choose a home with another name.")
    with translated(path):
        folder = os.path.dirname(path)
        try:
            make_private_folder(folder)
            # Created here so that it is private from the first moment on.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as exc:
            raise StoreUnavailable(f"{path}: cannot be opened ({exc.strerror}).") from exc
        db = apsw.Connection(path, vfs=checksum_vfs())
        try:
            _prepare(db, migrations)
        except BaseException:
            db.close()
            raise
        return db


def connect_in_memory(migrations: str) -> apsw.Connection:
    """The same tables without a file, for where none can be written."""
    db = apsw.Connection(":memory:")
    migrate(db, migrations)
    return db


def _prepare(db: apsw.Connection, migrations: str) -> None:
    db.set_busy_timeout(BUSY_TIMEOUT_MS)
    if checksum_vfs():
        # Room for a checksum on every page. Only an empty file can take it; on any other it changes nothing.
        db.reserve_bytes("main", _CHECKSUM_BYTES)
    _switch_to_wal(db)
    # Derived data: after a power cut the last commits may be gone, which the next sync makes good.
    db.pragma("synchronous", "NORMAL")
    # Scans of packed vectors and merges of the full-text index stay in memory.
    db.pragma("cache_size", -16_000)
    db.pragma("temp_store", "MEMORY")
    # Without a limit the log keeps the size of the largest rebuild for ever.
    db.pragma("journal_size_limit", 16_000_000)
    migrate(db, migrations)


def _switch_to_wal(db: apsw.Connection) -> None:
    """Readers go on while one process writes. Several processes may switch a new file at once, and SQLite
    reports that as busy without waiting, so this waits instead."""
    for attempt in range(_WAL_TRIES):
        try:
            db.pragma("journal_mode", "WAL")
            return
        except apsw.BusyError:
            if attempt == _WAL_TRIES - 1:
                raise
            time.sleep(0.02)


@cache
def checksum_vfs() -> str | None:
    """SQLite's checksum layer, which apsw ships: a byte that changed on disk is noticed when its page is read.

    It makes itself the default for the whole process, which is not ours to decide, so that is put back.
    """
    folder = os.path.join(os.path.dirname(apsw.__file__ or ""), "sqlite_extra_binaries")
    for ending in (".so", ".dylib"):
        library = os.path.join(folder, "cksumvfs" + ending)
        if os.path.exists(library):
            default = apsw.vfs_names()[0]
            carrier = apsw.Connection(":memory:")
            try:
                carrier.enable_load_extension(True)
                carrier.load_extension(library)
            except apsw.Error:
                return None
            finally:
                carrier.close()
            apsw.set_default_vfs(default)
            return _CHECKSUM_VFS
    return None


@cache
def read_migrations(folder: str) -> tuple[tuple[int, str], ...]:
    found = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".sql"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                found.append((int(name.partition("_")[0]), file.read()))
    return tuple(found)


def migrate(db: apsw.Connection, migrations: str) -> None:
    """Brings the permanent tables to the current version; the change and its record commit together."""
    newest = read_migrations(migrations)[-1][0]
    version = db.pragma("user_version")
    if version == newest:
        return
    if version > newest:
        raise StoreTooNew(f"{db.filename}: is of version {version}; this Kept knows up to {newest}.")
    with immediate(db):
        version = int(db.pragma("user_version"))  # another process may have been faster
        for number, script in read_migrations(migrations):
            if number > version:
                db.execute(script)
                db.pragma("user_version", number)


@contextmanager
def immediate(db: apsw.Connection) -> Iterator[None]:
    """A write transaction. It takes the write lock at its beginning: one that reads first and writes later
    fails at once when another has written in between, whatever the timeout."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(db: apsw.Connection) -> Iterator[None]:
    """Several reads that see one state of the file."""
    if db.in_transaction:
        yield
        return
    db.execute("BEGIN")
    try:
        yield
    finally:
        if not db.get_autocommit():
            db.execute("ROLLBACK")


@contextmanager
def translated(path: str) -> Iterator[None]:
    try:
        yield
    except apsw.Error as exc:
        raise translate(exc, path) from exc


def translate(exc: apsw.Error, path: str) -> StoreError:
    match exc:
        case apsw.FullError():
            return StoreFull(f"{path}: the disk is full.")
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(f"{path}: another process is writing.")
        case apsw.CorruptError() | apsw.NotADBError() | apsw.FormatError():
            return StoreDamaged(f"{path}: the index is damaged ({exc}).")
        case apsw.IOError() if _extended(exc) in _DAMAGE:
            return StoreDamaged(f"{path}: the index is damaged (a page does not match its checksum).")
        case apsw.IOError():
            return (
                StoreFull(f"{path}: could not be written ({exc}).")
                if _is_full(exc)
                else StoreUnavailable(f"{path}: could not be read or written ({exc}).")
            )
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError():
            return StoreUnavailable(f"{path}: cannot be opened for writing ({exc}).")
        case apsw.SQLError() if str(exc).startswith("no such"):
            return StoreDamaged(f"{path}: the index does not have the expected tables ({exc}).")
        case _:
            return StoreError(f"{path}: {exc}.")


_DAMAGE = (apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS)


def _is_full(exc: apsw.Error) -> bool:
    return _extended(exc) in (apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_TRUNCATE)


def _extended(exc: apsw.Error) -> int:
    return int(getattr(exc, "extendedresult", 0))


def file_number(path: str) -> tuple[int, int] | None:
    """Which file is at a path: it may have been deleted and made anew since it was opened."""
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_dev, state.st_ino


def database_files(path: str) -> tuple[str, ...]:
    return (path, f"{path}-wal", f"{path}-shm")


def delete_database(path: str) -> None:
    """The main file last: with it gone and its log left, SQLite would take the log for that of the new file."""
    for part in reversed(database_files(path)):
        try:
            os.unlink(part)
        except FileNotFoundError:
            pass

"""Opens a derived SQLite file, and translates SQLite's errors into ours.

The search index and the session catalogue use this. ``noun`` is how an error message names the file: "index" or
"session catalogue".
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Protocol, TypeVar

import apsw

from kept.database_files import create_private, opening
from kept.durable import make_private_folder
from kept.errors import (
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreTooNew,
    StoreUnavailable,
)
from kept.forking import require_usable
from kept.text import is_utf8

BUSY_TIMEOUT_MS = 5_000
_WAL_TRIES = 50
_CHECKSUM_VFS = "cksmvfs"
_CHECKSUM_BYTES = 8

T = TypeVar("T")

IN_ROWS = "row IN (SELECT value FROM json_each(?))"
"""Condition on any number of rows. A list of question marks would be another statement for each length."""


def pack_rows(rows: Iterable[int]) -> str:
    """Return the value for `IN_ROWS`."""
    return f"[{','.join(map(str, rows))}]"


class HealDatabase(Protocol):
    def __call__(self, damage: StoreDamaged, *, is_certain: bool) -> None: ...


def heal_and_retry(action: Callable[[], T], heal: HealDatabase) -> T:
    """Call an action. If the database turns out to be damaged, heal it and call the action again.

    The first damage may come from a stale connection, so ``heal`` checks the file. What a fresh connection finds
    damaged again is replaced, whatever a check says: then ``is_certain`` is True.
    """
    for is_certain in (False, True):
        try:
            return action()
        except StoreDamaged as damage:
            heal(damage, is_certain=is_certain)
    return action()


def connect(path: str, migrations: str, *, noun: str) -> apsw.Connection:
    """Open a file and bring it to the current schema with the numbered files of the folder ``migrations``.

    A missing file is created, with its folder.
    """
    require_usable()
    if not is_utf8(path):
        raise StoreUnavailable(f"{path}: SQLite needs a path in UTF-8.", hint="Choose a home with another name.")
    with translated(path, noun=noun):
        try:
            make_private_folder(os.path.dirname(path))
            create_private(path)
        except OSError as exc:
            raise StoreUnavailable(f"{path}: cannot be opened ({exc.strerror}).") from exc
        with opening(path):
            db = apsw.Connection(path, vfs=checksum_vfs())
            try:
                _prepare(db, migrations)
            except BaseException:  # also KeyboardInterrupt: an open connection would keep its locks
                db.close()
                raise
        return db


def connect_in_memory(migrations: str) -> apsw.Connection:
    """Open the same tables without a file, for when none can be written."""
    require_usable()
    db = apsw.Connection(":memory:")
    migrate(db, migrations)
    return db


def _prepare(db: apsw.Connection, migrations: str) -> None:
    db.set_busy_timeout(BUSY_TIMEOUT_MS)
    if checksum_vfs():
        # Space for a checksum on every page. Only an empty file can get it; on any other this changes nothing.
        db.reserve_bytes("main", _CHECKSUM_BYTES)
    _switch_to_wal(db)
    # Derived data: a power cut may lose the last commits, and the next sync repeats them.
    db.pragma("synchronous", "NORMAL")
    # Scans of packed vectors and merges of the full-text index stay in memory.
    db.pragma("cache_size", -16_000)
    db.pragma("temp_store", "MEMORY")
    # Without a limit the log keeps the size of the largest rebuild forever.
    db.pragma("journal_size_limit", 16_000_000)
    migrate(db, migrations)


def _switch_to_wal(db: apsw.Connection) -> None:
    """Switch to write-ahead logging, so that readers continue while one process writes.

    Several processes may switch a new file at once. SQLite reports that as busy without waiting, so this waits.
    """
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
    """Load SQLite's checksum layer, which apsw ships, and return its name, or None if there is none.

    With it, a byte that changed on disk is noticed when its page is read. Loading it changes the process-wide default
    VFS, which is restored here.
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
    """Return number and script of each migration."""
    scripts = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".sql"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                scripts.append((int(name.partition("_")[0]), file.read()))
    return tuple(scripts)


def migrate(db: apsw.Connection, migrations: str) -> None:
    """Bring the permanent tables to the current version. A change and its version number commit together."""
    newest = read_migrations(migrations)[-1][0]
    version = db.pragma("user_version")
    if version == newest:
        return
    if version > newest:
        raise StoreTooNew(f"{db.filename}: has version {version}; this Kept knows versions up to {newest}.")
    with immediate(db):
        version = int(db.pragma("user_version"))  # another process may have been faster
        for number, script in read_migrations(migrations):
            if number > version:
                db.execute(script)
                db.pragma("user_version", number)


@contextmanager
def immediate(db: apsw.Connection) -> Iterator[None]:
    """Run a write transaction that takes the write lock at its start.

    A transaction that reads first and writes later fails at once, regardless of the timeout, if another has written
    in between.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:  # also KeyboardInterrupt: the write lock must not stay
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(db: apsw.Connection) -> Iterator[None]:
    """Run several reads that see one state of the file."""
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
def translated(path: str, *, noun: str) -> Iterator[None]:
    try:
        yield
    except apsw.Error as exc:
        raise translate(exc, path, noun=noun) from exc


def translate(exc: apsw.Error, path: str, *, noun: str) -> StoreError:
    match exc:
        case apsw.FullError():
            return StoreFull(f"{path}: the disk is full.")
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(f"{path}: another process is writing.")
        case apsw.CorruptError() | apsw.NotADBError() | apsw.FormatError():
            return StoreDamaged(f"{path}: the {noun} is damaged ({exc}).")
        case apsw.IOError() if _extended(exc) in _DAMAGE:
            return StoreDamaged(f"{path}: the {noun} is damaged (a page does not match its checksum).")
        case apsw.IOError():
            return (
                StoreFull(f"{path}: could not be written ({exc}).")
                if _is_full(exc)
                else StoreUnavailable(f"{path}: could not be read or written ({exc}).")
            )
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError():
            return StoreUnavailable(f"{path}: cannot be opened for writing ({exc}).")
        case apsw.SQLError() if str(exc).startswith(("no such", "vtable constructor failed")):
            return StoreDamaged(f"{path}: the {noun} does not have the expected tables ({exc}).")
        case _:
            return StoreError(f"{path}: {exc}.")


_DAMAGE = (apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS)


def _is_full(exc: apsw.Error) -> bool:
    return _extended(exc) in (apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_TRUNCATE)


def _extended(exc: apsw.Error) -> int:
    return int(getattr(exc, "extendedresult", 0))

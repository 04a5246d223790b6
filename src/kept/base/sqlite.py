"""Derived SQLite files: locks, deleting a damaged one, connections, and errors.

The search index, its embedding cache and the session catalogue use this.

SQLite finds a database's log (``-wal``) and shared memory (``-shm``) by name. A new database must therefore never meet
the log or the shared memory of the old one, and a process must never open them for the wrong database.

``noun`` is how an error message names the file: "index", "embedding cache" or "session catalogue".
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import TypeVar

import apsw

from kept.base.durable import make_private_folder, sync_folder
from kept.base.file_lock import locked
from kept.base.limits import is_utf8
from kept.errors import (
    LockBusy,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreTooNew,
    StoreUnavailable,
    WorkspaceError,
)

# processes and threads


class ProcessLock:
    """A reentrant lock around the use of a database. SQLite forbids a forked child to use its parent's connections: so
    there it starts free, and ``drop_parent`` is called once before the first use."""

    def __init__(self, drop_parent: Callable[[], None]) -> None:
        self._drop_parent = drop_parent
        self._pid = os.getpid()
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), threading.RLock()
            self._drop_parent()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def forget_connection(connection: object) -> None:
    """Keep a connection of the parent process from being closed here, when it is garbage-collected."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


# the files of a database

_OPEN_WAIT_S = 5.0
_REPLACE_WAIT_S = 30.0


def file_number(path: str) -> tuple[int, int] | None:
    """Return device and inode of the file at a path, or None. They tell whether a file was replaced."""
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_dev, state.st_ino


def database_files(path: str) -> tuple[str, ...]:
    return (path, f"{path}-wal", f"{path}-shm")


def create_private(path: str) -> None:
    """Create an empty file that only its owner can read, unless the file exists.

    The file gets its name after it was closed: closing a file drops every lock that this process holds on it,
    including those of SQLite on another connection.
    """
    if os.path.exists(path):
        return
    temporary = f"{path}.{os.urandom(6).hex()}.tmp"
    os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass  # another process was faster
    except OSError:  # a file system without hard links
        os.rename(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


@contextmanager
def opening(path: str) -> Iterator[None]:
    """Keep other processes from replacing the database while its files are opened one after the other."""
    with ExitStack() as stack:
        try:
            stack.enter_context(
                locked(os.path.dirname(path), wait_s=_OPEN_WAIT_S, purpose="replacing it", create=False, shared=True)
            )
        except LockBusy as exc:
            raise StoreBusy(f"{path}: {exc.message}") from exc
        except (WorkspaceError, OSError):
            pass  # a folder that cannot be locked here cannot be locked to replace the database either
        yield


# connections

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


def retry_damaged(
    action: Callable[[], T], reopen: Callable[[], object], replace: Callable[[StoreDamaged], object]
) -> T:
    """Call an action. If the database looks damaged, call it again with a fresh connection, since the first one may
    have been stale. If that one finds damage too, replace the database and call the action once more."""
    try:
        return action()
    except StoreDamaged:
        reopen()
    try:
        return action()
    except StoreDamaged as damage:
        replace(damage)
    return action()


def discard_if_damaged(
    path: str, db: FileConnection | None, open_again: Callable[[], object], *, wait_s: float, purpose: str
) -> bool:
    """Delete a damaged database, unless another process has replaced it meanwhile. Return whether it was deleted.

    ``db`` is the connection that saw the damage. The caller closes it afterwards: as long as it is open, no other file
    gets the number of its file. It is None if the file could not be opened; then ``open_again`` tries that once more.

    Other processes may have the file open. They keep it until they close it, and SQLite notices that it has no name any
    more: closing it touches nothing of the new one. If this process is killed in between, the old file has no log: it
    is found damaged again, or is an earlier state.
    """
    with locked(f"{path}.lock", wait_s=wait_s, purpose=purpose):
        if db is not None and not db.is_current(path):
            return False
        if db is None:
            with suppress(StoreDamaged):
                open_again()
                return False
        folder = os.path.dirname(path)
        try:
            with locked(folder, wait_s=_REPLACE_WAIT_S, purpose="opening it"):
                for part in reversed(database_files(path)):  # the main file last, so that no log is left without it
                    with suppress(FileNotFoundError):
                        os.unlink(part)
                sync_folder(folder)
        except LockBusy as exc:
            raise StoreBusy(f"{path}: {exc.message}") from exc
        except OSError as exc:
            raise StoreUnavailable(f"{path}: the damaged file could not be deleted ({exc.strerror}).") from exc
        except WorkspaceError as exc:
            raise StoreUnavailable(exc.message) from exc
    return True


class FileConnection(apsw.Connection):
    """Connection that knows the number of its file. The number is taken while no process can replace the file."""

    number: tuple[int, int] | None = None

    def is_current(self, path: str) -> bool:
        """Return whether a path still has this file. It may have been deleted or replaced."""
        return self.number is not None and file_number(path) == self.number


def connect(path: str, migrations: str, *, noun: str, page_bytes: int = 4096) -> FileConnection:
    """Open a file and bring it to the current schema with the numbered files of the folder ``migrations``.

    A missing file is created, with its folder and with pages of ``page_bytes``. Raise StoreUnavailable or StoreFull if
    the file cannot be written.
    """
    if not is_utf8(path):
        raise StoreUnavailable(f"{path}: SQLite needs a path in UTF-8.", hint="Choose a home with another name.")
    with translated(path, noun=noun):
        try:
            make_private_folder(os.path.dirname(path))
            create_private(path)
        except OSError as exc:
            raise StoreUnavailable(f"{path}: cannot be opened ({exc.strerror}).") from exc
        with opening(path):
            db = FileConnection(path, vfs=checksum_vfs())
            try:
                db.number = file_number(path)
                if db.readonly("main"):  # SQLite opens a file for reading if it may not write it
                    raise StoreUnavailable(f"{path}: cannot be opened for writing.")
                _prepare(db, migrations, page_bytes)
            except BaseException:  # also KeyboardInterrupt: an open connection would keep its locks
                db.close()
                raise
        return db


def connect_or_read(
    path: str, migrations: str, *, noun: str, page_bytes: int = 4096
) -> tuple[FileConnection, StoreError | None]:
    """Return a connection, and the reason if it can only read: a file is also read on a disk without space."""
    try:
        return connect(path, migrations, noun=noun, page_bytes=page_bytes), None
    except (StoreFull, StoreUnavailable) as exc:
        reason = why_unwritable(path, exc)
        if not is_utf8(path) or not os.path.exists(path):
            raise reason from exc
        try:
            return connect_read_only(path, migrations, noun=noun), reason
        except (StoreFull, StoreUnavailable):
            raise reason from exc


def connect_read_only(path: str, migrations: str, *, noun: str) -> FileConnection:
    """Open an existing file of the current schema on a disk that is read-only or full.

    Write-ahead logging needs shared memory, which is a file. If there is one, SQLite reads beside a process that may be
    writing. Otherwise no process has the database open, and it is opened as immutable: without a lock and without
    noticing a later change. That would ignore a log, so it is refused if there is one.
    """
    with translated(path, noun=noun), opening(path):
        try:
            db = _open_read_only(path, "mode=ro")
        except (apsw.CantOpenError, apsw.IOError, apsw.ReadOnlyError):
            if os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal"):
                raise
            db = _open_read_only(path, "mode=ro&immutable=1")
        try:
            version = db.pragma("user_version")
        except BaseException:  # the file may change while it is read
            db.close()
            raise
    if version != _read_migrations(migrations)[-1][0]:
        db.close()
        raise StoreUnavailable(f"{path}: has to be converted to this version of Kept, and cannot be written.")
    return db


def _open_read_only(path: str, parameters: str) -> FileConnection:
    name = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    db = FileConnection(f"file:{name}?{parameters}", flags=flags, vfs=checksum_vfs())
    try:
        db.number = file_number(path)
        db.set_busy_timeout(BUSY_TIMEOUT_MS)
        _limit_memory(db)
        db.execute("SELECT count(*) FROM sqlite_schema").get  # noqa: B018 (opens the log and its shared memory)
    except BaseException:  # as in `connect`
        db.close()
        raise
    return db


def why_unwritable(path: str, error: StoreError) -> StoreError:
    """Return the reason why a file could not be opened for writing, in place of SQLite's error."""
    folder = os.path.dirname(path)
    try:
        state = os.statvfs(folder)
    except OSError:
        return error
    if state.f_flag & os.ST_RDONLY:
        return StoreUnavailable(f"{path}: is on a read-only file system.")
    if not os.access(folder, os.W_OK) or (os.path.exists(path) and not os.access(path, os.W_OK)):
        return StoreUnavailable(f"{path}: is read-only, because you may not write to it or to its folder.")
    return StoreFull(f"{path}: the disk is full.") if state.f_bavail == 0 else error


def _prepare(db: apsw.Connection, migrations: str, page_bytes: int) -> None:
    db.set_busy_timeout(BUSY_TIMEOUT_MS)
    db.pragma("page_size", page_bytes)
    if checksum_vfs():
        # Space for a checksum on every page. Only an empty file can get it; on any other this changes nothing.
        db.reserve_bytes("main", _CHECKSUM_BYTES)
    # With write-ahead logging, readers continue while one process writes. Several processes may switch a new file at
    # once. SQLite reports that as busy without waiting, so this waits.
    for attempt in range(_WAL_TRIES):
        try:
            db.pragma("journal_mode", "WAL")
            break
        except apsw.BusyError:
            if attempt == _WAL_TRIES - 1:
                raise
            time.sleep(0.02)
    # Derived data: a power cut may lose the last commits, and the next sync repeats them.
    db.pragma("synchronous", "NORMAL")
    _limit_memory(db)
    # Without a limit the log keeps the size of the largest rebuild forever.
    db.pragma("journal_size_limit", 16_000_000)
    migrate(db, migrations)


def _limit_memory(db: apsw.Connection) -> None:
    """Keep scans of packed vectors and merges of the full-text index in memory."""
    db.pragma("cache_size", -16_000)
    db.pragma("temp_store", "MEMORY")


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
def _read_migrations(folder: str) -> tuple[tuple[int, str], ...]:
    """Return number and script of each migration: numbered SQL files."""
    scripts = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".sql"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                scripts.append((int(name.partition("_")[0]), file.read()))
    return tuple(scripts)


def migrate(db: apsw.Connection, migrations: str) -> None:
    """Bring the permanent tables to the current version. A change and its version number commit together."""
    newest = _read_migrations(migrations)[-1][0]
    version = db.pragma("user_version")
    if version == newest:
        return
    if version > newest:
        raise StoreTooNew(f"{db.filename}: has version {version}; this Kept knows versions up to {newest}.")
    with immediate(db):
        version = int(db.pragma("user_version"))  # another process may have been faster
        for number, script in _read_migrations(migrations):
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


def rewrite_database(db: apsw.Connection, path: str, *, noun: str) -> None:
    """Write a database anew without its free pages, and empty its log. The caller holds the lock of its writers."""
    with translated(path, noun=noun):
        db.execute("VACUUM")
        busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() or (0, 0, 0)
    if busy:
        raise StoreBusy(f"{path}: another process is reading, so old pages are still in its log.")


@contextmanager
def translated(path: str, *, noun: str) -> Iterator[None]:
    try:
        yield
    except apsw.Error as exc:
        raise translate(exc, path, noun=noun) from exc


def translate(exc: apsw.Error, path: str, *, noun: str) -> StoreError:
    code = int(getattr(exc, "extendedresult", 0))
    match exc:
        case apsw.FullError():
            return StoreFull(f"{path}: the disk is full.")
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(f"{path}: another process is writing.")
        case apsw.CorruptError() | apsw.NotADBError() | apsw.FormatError():
            return StoreDamaged(f"{path}: the {noun} is damaged ({exc}).")
        case apsw.IOError() if code in _DAMAGE:
            return StoreDamaged(f"{path}: the {noun} is damaged (a page does not match its checksum).")
        case apsw.IOError() if code in _FULL:
            return StoreFull(f"{path}: could not be written, perhaps because the disk is full ({exc}).")
        case apsw.IOError():
            return StoreUnavailable(f"{path}: could not be read or written ({exc}).")
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError():
            return StoreUnavailable(f"{path}: cannot be opened for writing ({exc}).")
        case apsw.SQLError() if str(exc).startswith(("no such", "vtable constructor failed")):
            return StoreDamaged(f"{path}: the {noun} does not have the expected tables ({exc}).")
        case _:
            return StoreError(f"{path}: {exc}.")


_FULL = (
    apsw.SQLITE_IOERR_WRITE,
    apsw.SQLITE_IOERR_FSYNC,
    apsw.SQLITE_IOERR_TRUNCATE,
    apsw.SQLITE_IOERR_SHMOPEN,
    apsw.SQLITE_IOERR_SHMSIZE,
)
_DAMAGE = (apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS)

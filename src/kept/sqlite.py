"""Derived SQLite files: replacing a damaged one, connections, and errors.

The search index and the session catalogue use this.

SQLite finds a database's log (``-wal``) and shared memory (``-shm``) by name. A new database must therefore never meet
the log or the shared memory of the old one, and a process must never open them for the wrong database.

``noun`` is how an error message names the file: "index" or "session catalogue".
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Protocol, TypeVar

import apsw

from kept.durable import make_private_folder, sync_folder
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
from kept.file_lock import locked
from kept.forking import require_usable
from kept.limits import is_utf8

# the files of a database

KEPT_ASIDE = 2
"""Number of damaged files that are kept for examination."""
_LOGS = ("-shm", "-wal")
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


def delete_database(path: str) -> None:
    """Delete a database that is not open. The main file goes last, so that no log is left without it."""
    for part in reversed(database_files(path)):
        _unlink(part)


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
        _link(temporary, path)
    except FileExistsError:
        pass  # another process was faster
    finally:
        _unlink(temporary)


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


def replace_damaged(path: str, replacement: str | None) -> str:
    """Rename a damaged database and move its replacement, if any, to its path. Return the new name of the old one.

    Processes that have the old database open keep its file, log and shared memory under the new names, and SQLite
    notices the move: closing it deletes nothing. The caller holds the lock that writers of this database take.

    The log is moved first. After a crash in between, the damaged file has no log and is found damaged again; the new
    file never meets the log of the old one.
    """
    aside = f"{path}.damaged-{max(_numbers(path), default=0) + 1}"
    folder = os.path.dirname(path)
    try:
        with locked(folder, wait_s=_REPLACE_WAIT_S, purpose="opening it"):
            if replacement is not None:
                _link(path, aside)
            for ending in _LOGS:
                _rename(path + ending, aside + ending)
            if replacement is not None:
                os.replace(replacement, path)
            else:
                _rename(path, aside)
            sync_folder(folder)
    except LockBusy as exc:
        raise StoreBusy(f"{path}: {exc.message}") from exc
    except OSError as exc:
        raise StoreUnavailable(f"{path}: the damaged file could not be replaced ({exc.strerror}).") from exc
    except WorkspaceError as exc:
        raise StoreUnavailable(exc.message) from exc
    for older in damaged_files(path)[:-KEPT_ASIDE]:
        delete_database(older)
    return aside


def damaged_files(path: str) -> list[str]:
    """Return the damaged files that were moved aside, oldest first."""
    return [f"{path}.damaged-{number}" for number in sorted(_numbers(path))]


def _numbers(path: str) -> set[int]:
    pattern = re.compile(re.escape(os.path.basename(path)) + r"\.damaged-(\d{1,9})(?:-wal|-shm)?")
    matches = (pattern.fullmatch(name) for name in os.listdir(os.path.dirname(path)))
    return {int(match.group(1)) for match in matches if match}


def _link(path: str, other: str) -> None:
    try:
        os.link(path, other)
    except FileExistsError:
        raise
    except FileNotFoundError:
        pass
    except OSError:  # a file system without hard links
        os.rename(path, other)


def _rename(path: str, other: str) -> None:
    try:
        os.rename(path, other)
    except FileNotFoundError:
        pass


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


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


class RepairDatabase(Protocol):
    def __call__(self, damage: StoreDamaged, *, is_certain: bool) -> None: ...


def repair_and_retry(action: Callable[[], T], repair: RepairDatabase) -> T:
    """Call an action. If the database turns out to be damaged, repair it and call the action again.

    The first damage may come from a stale connection, so ``repair`` checks the file. What a fresh connection finds
    damaged again is replaced, whatever a check says: then ``is_certain`` is True.
    """
    for is_certain in (False, True):
        try:
            return action()
        except StoreDamaged as damage:
            repair(damage, is_certain=is_certain)
    return action()


def connect(path: str, migrations: str, *, noun: str, page_bytes: int = 4096) -> apsw.Connection:
    """Open a file and bring it to the current schema with the numbered files of the folder ``migrations``.

    A missing file is created, with its folder and with pages of ``page_bytes``. Raise StoreUnavailable or StoreFull if
    the file cannot be written.
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
                if db.readonly("main"):  # SQLite opens a file for reading if it may not write it
                    raise StoreUnavailable(f"{path}: cannot be opened for writing.")
                _prepare(db, migrations, page_bytes)
            except BaseException:  # also KeyboardInterrupt: an open connection would keep its locks
                db.close()
                raise
        return db


def connect_read_only(path: str, migrations: str, *, noun: str) -> apsw.Connection:
    """Open an existing file of the current schema on a disk that is read-only or full.

    Write-ahead logging needs shared memory, which is a file. If there is one, SQLite reads beside a process that may be
    writing. Otherwise no process has the database open, and it is opened as immutable: without a lock and without
    noticing a later change. That would ignore a log, so it is refused if there is one.
    """
    require_usable()
    with translated(path, noun=noun), opening(path):
        try:
            db = _open_read_only(path, "mode=ro")
        except (apsw.CantOpenError, apsw.IOError, apsw.ReadOnlyError):
            if os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal"):
                raise
            db = _open_read_only(path, "mode=ro&immutable=1")
    if db.pragma("user_version") != _read_migrations(migrations)[-1][0]:
        db.close()
        raise StoreUnavailable(f"{path}: has to be converted to this version of Kept, and cannot be written.")
    return db


def _open_read_only(path: str, parameters: str) -> apsw.Connection:
    name = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    db = apsw.Connection(f"file:{name}?{parameters}", flags=flags, vfs=checksum_vfs())
    try:
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


def connect_in_memory(migrations: str) -> apsw.Connection:
    """Open the same tables without a file, for when none can be written."""
    require_usable()
    db = apsw.Connection(":memory:")
    migrate(db, migrations)
    return db


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
                StoreFull(f"{path}: could not be written, perhaps because the disk is full ({exc}).")
                if _is_full(exc)
                else StoreUnavailable(f"{path}: could not be read or written ({exc}).")
            )
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


def _is_full(exc: apsw.Error) -> bool:
    return _extended(exc) in _FULL


def _extended(exc: apsw.Error) -> int:
    return int(getattr(exc, "extendedresult", 0))

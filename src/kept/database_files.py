"""The files of a SQLite database: identifying them, and replacing a damaged database that other processes have open.

SQLite finds a database's log (``-wal``) and shared memory (``-shm``) by name. A new database must therefore never meet
the log or the shared memory of the old one, and a process must never open them for the wrong database.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from kept.durable import sync_folder
from kept.errors import LockBusy, StoreBusy, StoreUnavailable, WorkspaceError
from kept.lock import locked

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
    _delete_older(path)
    return aside


def damaged_files(path: str) -> list[str]:
    """Return the damaged files that were moved aside, oldest first."""
    return [f"{path}.damaged-{number}" for number in sorted(_numbers(path))]


def _delete_older(path: str) -> None:
    for aside in damaged_files(path)[:-KEPT_ASIDE]:
        delete_database(aside)


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

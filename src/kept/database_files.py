"""The files of a SQLite database: which one is at a path, and how a damaged one is replaced while others have it open.

SQLite finds a database's log (``-wal``) and its shared memory (``-shm``) by name. A new database must therefore never
meet the log or the shared memory of the old one, and a process must never open them for the wrong database.
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
"""How many damaged files are kept, for whoever wants to look into them."""
_LOGS = ("-shm", "-wal")
_OPEN_WAIT_S = 5.0
_REPLACE_WAIT_S = 30.0


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
    """Delete a database that nobody has open. The main file goes last, so that no log is left without it."""
    for part in reversed(database_files(path)):
        _unlink(part)


def create_private(path: str) -> None:
    """Create an empty file that only its owner can read, unless there is one.

    It gets its name after it was closed: closing a file drops every lock that this process holds on it, and with them
    those of SQLite on another connection.
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
    """Hold off whoever would replace the database while its files are being opened one after the other."""
    with ExitStack() as held:
        try:
            held.enter_context(
                locked(os.path.dirname(path), wait_s=_OPEN_WAIT_S, purpose="replacing it", create=False, shared=True)
            )
        except LockBusy as exc:
            raise StoreBusy(f"{path}: {exc.message}") from exc
        except (WorkspaceError, OSError):
            pass  # where a folder cannot be locked, nobody can replace the database either
        yield


def replace_damaged(path: str, replacement: str | None) -> str:
    """Keep a damaged database under another name, and put a new one in its place, or none. Return that name.

    Whoever has the old one open keeps its file, log and shared memory under their new names, and SQLite notices that
    it was moved: closing it deletes nothing. The caller holds the lock that writers of this database take.

    The log is moved first. After a crash in between, the damaged file stands without its log, which is found damaged
    again; the new file never stands with the log of the old one.
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
    _forget_older(path)
    return aside


def damaged_files(path: str) -> list[str]:
    """What was put aside of a database, the oldest first."""
    return [f"{path}.damaged-{number}" for number in sorted(_numbers(path))]


def _forget_older(path: str) -> None:
    for aside in damaged_files(path)[:-KEPT_ASIDE]:
        delete_database(aside)


def _numbers(path: str) -> set[int]:
    pattern = re.compile(re.escape(os.path.basename(path)) + r"\.damaged-(\d{1,9})(?:-wal|-shm)?")
    found = (pattern.fullmatch(name) for name in os.listdir(os.path.dirname(path)))
    return {int(match.group(1)) for match in found if match}


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

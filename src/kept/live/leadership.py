"""Leadership of a live index: the process that holds a lock has it."""

from __future__ import annotations

import os
from contextlib import ExitStack

from kept.config import Config
from kept.durable import make_private_folder
from kept.errors import LockBusy, WorkspaceError
from kept.file_lock import locked
from kept.sqlite import file_number

_MAX_DIGITS = 20


def lock_path(config: Config) -> str:
    """Return the path of the lock. Each index has one, that is each pair of agent and workspace."""
    return config.paths.watcher_lock(config.workspace)


def find_watcher(config: Config) -> int | None:
    """Return the id of the process that keeps this index current, or None.

    The number in the file counts only while a process holds the lock.
    """
    path = lock_path(config)
    if not os.path.exists(path):
        return None
    try:
        with locked(path, wait_s=0, purpose="watching", create=False):
            return None
    except LockBusy:
        return _read_pid(path)
    except WorkspaceError:
        return None


def _read_pid(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            digits = file.read(_MAX_DIGITS).strip()
    except OSError:
        return None
    return int(digits) if digits.isdigit() else None


class LeaderLock:
    """The lock of the leader, held from `take` until `release` or the end of the process."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = ExitStack()
        self._file: tuple[int, int] | None = None

    def take(self) -> bool:
        """Try to take the lead. Return whether this process leads now."""
        try:
            make_private_folder(os.path.dirname(self.path))
            handle = self._lock.enter_context(locked(self.path, wait_s=0, purpose="watching"))
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        except LockBusy:
            return False
        except OSError as exc:
            self.release()
            raise WorkspaceError(f"{self.path}: cannot be locked ({exc.strerror}).") from exc
        state = os.fstat(handle)
        self._file = (state.st_dev, state.st_ino)
        return True

    def is_leader(self) -> bool:
        """Return whether this process still leads. If the lock file was deleted, another process can create a new
        one and lead as well, so this one no longer does."""
        return self._file is not None and file_number(self.path) == self._file

    def find_leader(self) -> int | None:
        return _read_pid(self.path)

    def release(self) -> None:
        self._lock.close()
        self._file = None

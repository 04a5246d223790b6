"""Which of several processes keeps an index current: the one that holds a lock, which the kernel drops with it."""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack

from kept.config import Config
from kept.database_files import file_number
from kept.durable import make_private_folder
from kept.errors import LockBusy, WorkspaceError
from kept.lock import locked

_MOST_DIGITS = 20


def lock_path(config: Config) -> str:
    """One for each index: that of an agent and a workspace."""
    name = hashlib.sha256(os.fsencode(config.workspace)).hexdigest()[:12]
    return os.path.join(config.home, "agents", config.agent_id, f"watcher-{name}.lock")


def find_watcher(config: Config) -> int | None:
    """The process that keeps this index current, or None when nobody does.

    The number in the file is believed only as long as somebody holds the lock.
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
            written = file.read(_MOST_DIGITS).strip()
    except OSError:
        return None
    return int(written) if written.isdigit() else None


class Leadership:
    """Held from `take` until `release`, or until the process is gone."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._held = ExitStack()
        self._file: tuple[int, int] | None = None

    def take(self) -> bool:
        """Whether this process leads now."""
        try:
            make_private_folder(os.path.dirname(self.path))
            handle = self._held.enter_context(locked(self.path, wait_s=0, purpose="watching"))
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

    def is_held(self) -> bool:
        """Not any more when the file was deleted: others would make a new one and lead as well."""
        return self._file is not None and file_number(self.path) == self._file

    def find_leader(self) -> int | None:
        return _read_pid(self.path)

    def release(self) -> None:
        self._held.close()
        self._file = None

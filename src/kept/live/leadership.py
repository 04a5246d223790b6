"""Leadership of a live index: on a machine the process that holds a lock, in a team the one that has the lease."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from kept.config import Config
from kept.durable import make_private_folder
from kept.errors import LockBusy, StoreError, WorkspaceError
from kept.file_lock import locked
from kept.sqlite import file_number

if TYPE_CHECKING:
    from kept.postgres.leases import Lease

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


class TeamLead(LeaderLock):
    """The lock of the leader of a host, and the lease of the leader of a team. Only who has both leads.

    Machines whose settings give the workspace the same name compete for the lease.
    """

    def __init__(self, path: str, lease: Lease) -> None:
        super().__init__(path)
        self._lease = lease
        self._renew_at = self._ends_at = 0.0

    def take(self) -> bool:
        if not super().take():
            return False
        self._renew_at = self._ends_at = 0.0
        if self._has_lease():
            return True
        self.release()
        return False

    def is_leader(self) -> bool:
        return super().is_leader() and self._has_lease()

    def release(self) -> None:
        was_leader = self._file is not None
        super().release()
        if was_leader:
            try:
                self._lease.release()
            except StoreError:
                pass  # it ends by itself

    def _has_lease(self) -> bool:
        """Renew the lease when it is time. It counts until its end, even if the database cannot be reached."""
        now = time.monotonic()
        if now >= self._renew_at:
            self._renew_at = now + self._lease.seconds / 3
            try:
                self._ends_at = now + self._lease.seconds if self._lease.renew() else 0.0
            except StoreError:
                pass
        return now < self._ends_at


def open_leadership(config: Config) -> LeaderLock:
    path, store = lock_path(config), config.memory_search.store
    if not store.is_shared or not store.workspace:
        return LeaderLock(path)  # no other machine has this index
    from kept.postgres.leases import Lease
    from kept.postgres.open_database import open_database

    return TeamLead(path, Lease(open_database(store), f"live {store.workspace}", seconds=config.gateway.lease_seconds))

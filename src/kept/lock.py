"""Locks between processes, held by the kernel: released the moment the holder exits, however it died."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from kept.errors import LockBusy, LockMissing, WorkspaceError

_POLL_S = 0.01


class _Handle:
    """An open lock file. A forked child closes its copies without releasing the lock."""

    open: ClassVar[set[_Handle]] = set()

    def __init__(self, number: int) -> None:
        self.number = number
        self.open.add(self)

    def close(self) -> None:
        if self in self.open:  # not in a child that was forked meanwhile
            self.open.discard(self)
            fcntl.flock(self.number, fcntl.LOCK_UN)  # closing is not enough while a child has a copy
            os.close(self.number)


def _close_copies() -> None:
    while _Handle.open:
        os.close(_Handle.open.pop().number)


os.register_at_fork(after_in_child=_close_copies)


@contextmanager
def locked(path: str, *, wait_s: float, purpose: str, create: bool = True, shared: bool = False) -> Iterator[int]:
    """Hold a lock on a file or a folder. Locking a folder leaves no lock file behind.

    Yields the file descriptor that holds the lock, so that the caller can check whether the path still names that file.
    Any number of processes can hold a ``shared`` lock at once; it excludes exclusive ones.
    """
    try:
        handle = _Handle(os.open(path, _flags_for(path, create=create) | os.O_CLOEXEC, 0o600))
    except FileNotFoundError as exc:
        raise LockMissing(f"{path}: does not exist.") from exc
    except OSError as exc:
        raise _cannot_lock(path, exc) from exc
    try:
        mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        _acquire(handle.number, mode, path, wait_s=wait_s, purpose=purpose)
        yield handle.number
    finally:
        handle.close()


def _flags_for(path: str, *, create: bool) -> int:
    """A folder may be named through a link. A lock file is never created or held through one."""
    if not create:
        return os.O_RDONLY | os.O_NOFOLLOW
    return os.O_RDONLY | os.O_DIRECTORY if os.path.isdir(path) else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW


def _acquire(handle: int, mode: int, path: str, *, wait_s: float, purpose: str) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, mode | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise LockBusy(f"Another process is {purpose}.", path=path) from None
            time.sleep(_POLL_S)


@contextmanager
def claimed(path: str) -> Iterator[bool]:
    """Yield True if the name could be claimed exclusively. Never waits, and leaves no file behind."""
    handle = _claim(path)
    try:
        yield handle is not None
    finally:
        if handle is not None and handle in _Handle.open:
            os.unlink(path)  # before closing: a process that opened it meanwhile sees that the name changed
            handle.close()


def _claim(path: str) -> _Handle | None:
    while True:
        try:
            handle = _Handle(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        except OSError as exc:
            raise _cannot_lock(path, exc) from exc
        try:
            fcntl.flock(handle.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            return None
        if _is_at(handle.number, path):
            return handle
        handle.close()  # the holder unlinked the name in between: try again


def _cannot_lock(path: str, exc: OSError) -> WorkspaceError:
    return WorkspaceError(f"{path}: cannot be locked ({exc.strerror}).", hint="Check its permissions.")


def _is_at(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False

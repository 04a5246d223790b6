"""Locks between processes, held by the kernel: released the moment the holder exits, however it died."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kept.errors import LockBusy, LockMissing, WorkspaceError

_POLL_S = 0.01


@contextmanager
def locked(path: str, *, wait_s: float, purpose: str, create: bool = True) -> Iterator[int]:
    """Hold an exclusive lock on a file or a folder. Locking a folder leaves no lock file behind.

    Yields the file descriptor that holds the lock, so that the caller can check whether the path still names that file.
    """
    flags = os.O_RDONLY if not create or os.path.isdir(path) else os.O_RDWR | os.O_CREAT
    try:
        handle = os.open(path, flags | os.O_CLOEXEC, 0o600)
    except FileNotFoundError as exc:
        raise LockMissing(f"{path}: does not exist.") from exc
    except OSError as exc:
        raise _cannot_lock(path, exc) from exc
    try:
        _acquire(handle, path, wait_s=wait_s, purpose=purpose)
        yield handle
    finally:
        os.close(handle)  # releases the lock


def _acquire(handle: int, path: str, *, wait_s: float, purpose: str) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
        if handle is not None:
            os.unlink(path)  # before closing: a process that opened it meanwhile sees that the name changed
            os.close(handle)


def _claim(path: str) -> int | None:
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as exc:
            raise _cannot_lock(path, exc) from exc
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        if _is_at(handle, path):
            return handle
        os.close(handle)  # the holder unlinked the name in between: try again


def _cannot_lock(path: str, exc: OSError) -> WorkspaceError:
    return WorkspaceError(f"{path}: cannot be locked ({exc.strerror}).", hint="Check its permissions.")


def _is_at(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False

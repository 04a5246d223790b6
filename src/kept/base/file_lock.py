"""Locks between processes. The kernel holds them, and releases them when the holder exits, however it died."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kept.errors import LockBusy, LockMissing, WorkspaceError, WriteFailed

_POLL_S = 0.01


_held: set[int] = set()
"""Open lock files."""


def _close_copies() -> None:
    """Close a forked child's copies, without releasing the locks."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_close_copies)


@contextmanager
def locked(path: str, *, wait_s: float, purpose: str, create: bool = True, shared: bool = False) -> Iterator[int]:
    """Hold a lock on a file or a folder. Locking a folder leaves no lock file behind.

    Yields the file descriptor that holds the lock, so that the caller can check whether the path still names that file.
    Any number of processes can hold a ``shared`` lock at once; it excludes exclusive ones.
    """
    # A folder may be named through a link. A lock file is never created or held through one.
    if not create:
        flags = os.O_RDONLY | os.O_NOFOLLOW
    else:
        flags = os.O_RDONLY | os.O_DIRECTORY if os.path.isdir(path) else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    try:
        number = os.open(path, flags | os.O_CLOEXEC, 0o600)
    except FileNotFoundError as exc:
        raise LockMissing(f"{path}: does not exist.") from exc
    except OSError as exc:
        kind = WorkspaceError if os.path.isdir(path) else WriteFailed  # a lock file may have to be created
        hint = "Check free space and permissions."
        raise kind(f"{path}: cannot be locked ({exc.strerror}).", hint=hint) from exc
    _held.add(number)
    holder = os.getpid()
    try:
        mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(number, mode | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise LockBusy(f"Another process is {purpose}.", path=path) from None
                time.sleep(_POLL_S)
        yield number
    finally:
        if os.getpid() == holder:  # a child that was forked meanwhile has closed its copy
            _held.discard(number)
            fcntl.flock(number, fcntl.LOCK_UN)  # closing is not enough while a child has a copy
            os.close(number)

"""A lock that processes respect, held by the kernel: it is gone the moment its holder is, however it died."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kept.errors import LockBusy, WorkspaceError

_POLL_S = 0.01


@contextmanager
def locked(path: str, *, wait_s: float, purpose: str, create: bool = True) -> Iterator[int]:
    """Holds an exclusive lock on a file or a folder. A folder needs no lock file that would be left behind.

    Gives the handle that holds it, which tells whether the file is still the one at that path.
    """
    try:
        handle = os.open(path, _flags_for(path, create) | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise WorkspaceError(f"{path}: cannot be locked ({exc.strerror}).", hint="Check its permissions.") from exc
    try:
        _acquire(handle, wait_s, purpose)
        yield handle
    finally:
        os.close(handle)  # closing is what lets go


def _flags_for(path: str, create: bool) -> int:
    """A folder may be named by a link to it. A lock file is never made or held through one."""
    if not create:
        return os.O_RDONLY | os.O_NOFOLLOW
    return os.O_RDONLY | os.O_DIRECTORY if os.path.isdir(path) else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW


def _acquire(handle: int, wait_s: float, purpose: str) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise LockBusy(f"Another process is {purpose}.") from None
            time.sleep(_POLL_S)


@contextmanager
def claimed(path: str) -> Iterator[bool]:
    """Whether the name could be claimed: nobody else holds it until this ends. Nobody waits, and no file is left."""
    handle = _claim(path)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            os.unlink(path)  # first: whoever opened it meanwhile sees that the name is no longer that file's
            os.close(handle)


def _claim(path: str) -> int | None:
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as exc:
            raise WorkspaceError(f"{path}: cannot be locked ({exc.strerror}).", hint="Check its permissions.") from exc
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        if _is_at(handle, path):
            return handle
        os.close(handle)  # its holder has let go of the name in between: what it is now has to be asked again


def _is_at(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False

"""A lock that processes respect, held by the kernel: it is gone the moment its holder is, however it died."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from kept.errors import LockBusy, WorkspaceError

_POLL_S = 0.01


class _Handle:
    """A lock file that is open and held. A forked child has copies of it, which it closes without letting go."""

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
    """Hold a lock on a file or a folder. A folder needs no lock file that would be left behind.

    Yield the handle that holds it, which tells whether the file is still the one at that path. Any number of
    processes can hold a ``shared`` lock at once, while nobody holds an exclusive one.
    """
    flags = os.O_RDONLY if not create or os.path.isdir(path) else os.O_RDWR | os.O_CREAT
    try:
        handle = _Handle(os.open(path, flags | os.O_CLOEXEC, 0o600))
    except OSError as exc:
        raise WorkspaceError(f"{path}: cannot be locked ({exc.strerror}).", hint="Check its permissions.") from exc
    try:
        _acquire(handle.number, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, wait_s, purpose)
        yield handle.number
    finally:
        handle.close()


def _acquire(handle: int, mode: int, wait_s: float, purpose: str) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, mode | fcntl.LOCK_NB)
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
        if handle is not None and handle in _Handle.open:
            os.unlink(path)  # first: whoever opened it meanwhile sees that the name is no longer that file's
            handle.close()


def _claim(path: str) -> _Handle | None:
    while True:
        try:
            handle = _Handle(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        except OSError as exc:
            raise WorkspaceError(f"{path}: cannot be locked ({exc.strerror}).", hint="Check its permissions.") from exc
        try:
            fcntl.flock(handle.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            return None
        if _is_at(handle.number, path):
            return handle
        handle.close()  # its holder has let go of the name in between: what it is now has to be asked again


def _is_at(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False

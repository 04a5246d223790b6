"""Forking a process that has databases open.

A fork copies one thread, and every lock as it is at that moment. A lock that another thread holds is never released in
the child, including SQLite's own locks, and SQLite forbids a child to use its parent's connections. So a fork waits
until no thread is inside a database; the child starts with free locks and drops the connections. If the wait timed
out, the child refuses to use a database, since that could hang.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any, Protocol

from kept.errors import ForkedWhileBusy

FORK_WAIT_S = 5.0
"""Longest wait of a fork for other threads. A sync of many notes takes longer."""
_POLL_S = 0.001


class Forkable(Protocol):
    def after_fork(self) -> None:
        """Drop what belongs to the parent. Called in the child."""


class DatabaseLock:
    """A reentrant lock around the use of a database.

    A thread that forks goes before all others, but for those that hold such a lock already: they may take more, since
    they could not end otherwise.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner = 0
        self._depth = 0
        _locks.add(self)

    def __enter__(self) -> None:
        me = threading.get_ident()
        while _forking not in (0, me) and not _held.count:
            time.sleep(_POLL_S)
        self._lock.acquire()
        self._hold()

    def _hold(self) -> None:
        self._owner = threading.get_ident()
        self._depth += 1
        _held.count += 1

    def __exit__(self, *_: object) -> None:
        _held.count -= 1
        self._depth -= 1
        if self._depth == 0:
            self._owner = 0
        self._lock.release()

    def acquire_if_free(self) -> bool:
        if not self._lock.acquire(blocking=False):
            return False
        self._hold()
        return True

    def renew(self) -> None:
        """In the child, free the lock unless the thread that forked holds it: other threads do not exist here."""
        if self._owner != threading.get_ident():
            self._lock, self._owner, self._depth = threading.RLock(), 0, 0


class _HeldLocks(threading.local):
    """How many times a thread has entered locks that it has not left."""

    count = 0


_held = _HeldLocks()
_locks: weakref.WeakSet[DatabaseLock] = weakref.WeakSet()
_members: weakref.WeakSet[Any] = weakref.WeakSet()
_forgotten: list[object] = []
_turn = threading.Lock()
_forking = 0
"""The thread that is about to fork."""
_locked_for_fork: list[DatabaseLock] = []
_is_busy = False
"""True if a thread is still inside a database while this process forks."""
_was_busy = False
"""True if that was so in the parent when this process was forked."""


def register_forkable(member: Forkable) -> None:
    _members.add(member)


def forget_connection(connection: object) -> None:
    """Keep a connection of the parent from being closed here, when it is garbage-collected."""
    try:
        import ctypes
    except ImportError:
        _forgotten.append(connection)  # until the process ends
    else:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def require_usable() -> None:
    """Raise ForkedWhileBusy in a child in which SQLite may hang."""
    if _was_busy:
        raise ForkedWhileBusy("This process was forked while another thread was using the memory.")


def _before_fork() -> None:
    global _forking, _is_busy
    _turn.acquire()
    _forking = threading.get_ident()
    deadline = time.monotonic() + FORK_WAIT_S
    while not _acquire_all():
        if time.monotonic() >= deadline:
            _is_busy = True
            return
        _release_locks()  # a thread may need one of them before it leaves another
        time.sleep(_POLL_S)


def _acquire_all() -> bool:
    """Take the locks that are free. Return whether that is all of them."""
    locks = [*_locks]
    taken = [lock for lock in locks if lock.acquire_if_free()]
    _locked_for_fork.extend(taken)
    return len(taken) == len(locks)


def _after_fork_in_parent() -> None:
    global _forking, _is_busy
    _release_locks()
    _forking, _is_busy = 0, False
    _turn.release()


def _after_fork_in_child() -> None:
    global _forking, _turn, _was_busy
    _was_busy = _was_busy or _is_busy
    _release_locks()
    for lock in [*_locks]:
        lock.renew()
    for member in [*_members]:
        member.after_fork()
    _forking, _turn = 0, threading.Lock()


def _release_locks() -> None:
    while _locked_for_fork:
        _locked_for_fork.pop().__exit__()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)

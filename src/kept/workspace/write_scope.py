"""`writing_to`: the lock that every writer of notes holds, and what happens after it.

Where a workspace is a copy of files that a team has in a database, whoever wrote sends what it wrote before it returns.
This module knows nothing about that: `share_writes` registers a function for a workspace. It is called after the locks
are released, once for everything that was written under them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

from kept.file_lock import locked

if TYPE_CHECKING:
    from kept.workspace.workspace import Workspace


class WriteMark(Protocol):
    """Mark of a write that is under way. It stays if the process is killed, or if nothing could be sent."""

    def send(self, paths: list[str]) -> None:
        """Send what was written to these paths. It never raises: the files are here, and are sent later."""
        ...


_marks: dict[str, Callable[[], WriteMark]] = {}


class _Scope(threading.local):
    def __init__(self) -> None:
        self.depth = 0
        self.paths: list[str] = []


_scope = _Scope()


def share_writes(root: str, begin: Callable[[], WriteMark]) -> None:
    """Call ``begin`` before the first write to a workspace, and send what was written after the last."""
    _marks[root] = begin


def note_written(*paths: str | None) -> None:
    """Note that files of the workspace were written, by their paths in it."""
    if _scope.depth:
        _scope.paths += [path for path in paths if path is not None]


@contextmanager
def not_sharing() -> Iterator[None]:
    """Send nothing of what this thread writes meanwhile: it came from the database."""
    _scope.depth += 1
    try:
        yield
    finally:
        _scope.depth -= 1
        if not _scope.depth:
            _scope.paths = []


def writing_to(workspace: Workspace, *, wait_s: float) -> AbstractContextManager[None]:
    """Hold the lock of a workspace."""
    return sharing_writes(workspace.root, workspace.root, wait_s=wait_s, purpose="writing to this workspace")


@contextmanager
def sharing_writes(root: str, lock: str, *, wait_s: float, purpose: str) -> Iterator[None]:
    """Hold a lock of a workspace. What is written under it is shared when the outermost one is released."""
    begin = _marks.get(root)
    if begin is None:
        with locked(lock, wait_s=wait_s, purpose=purpose):
            yield
        return
    is_outermost = _scope.depth == 0
    mark = None
    try:
        with locked(lock, wait_s=wait_s, purpose=purpose):
            mark = begin() if is_outermost else None
            _scope.depth += 1
            try:
                yield
            finally:
                _scope.depth -= 1
    finally:
        if mark is not None:
            paths, _scope.paths = _scope.paths, []
            mark.send(paths)

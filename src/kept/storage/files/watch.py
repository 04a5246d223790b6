"""Notices changes of files: the kernel tells when to look, and a comparison of two lists tells what changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

from kept.base.durable import make_private_folder
from kept.storage.contract import is_log, is_own
from kept.storage.files.folders import walk

_STEP_MS = 10


class FolderWatch:
    """Watches the folders of a storage, each without its subfolders, so that no link makes it watch more."""

    def __init__(self, root: str, prefix: str) -> None:
        self._root, self._prefix = root, prefix
        make_private_folder(root)
        self._stop = Event()
        self._folders: frozenset[str] = frozenset()
        self._wake: Iterator[object] = iter(())
        self._states = self._scan()

    def __enter__(self) -> FolderWatch:
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        for _batch in self._wake:
            pass

    def wait(self, timeout_s: float) -> frozenset[str]:
        """Return the paths and names that changed, as soon as there are some; none when the time is up."""
        deadline = time.monotonic() + timeout_s
        while True:
            before, self._states = self._states, self._scan()
            if changed := before.items() ^ self._states.items():
                return frozenset(path for path, _ in changed)
            if time.monotonic() >= deadline:
                return frozenset()
            self._sleep(lambda: time.monotonic() >= deadline)

    def _sleep(self, is_over: Callable[[], bool]) -> None:
        for batch in self._wake:
            if batch or is_over():
                return

    def _scan(self) -> dict[str, tuple[int, int, int]]:
        """Return the state of every file, and watch the folders that they are in from before they were listed."""
        while True:
            states = {
                path: (state.st_ino, state.st_size, state.st_mtime_ns)
                for path, state in walk(self._root, self._prefix)
                if is_log(path) or not is_own(path)
            }
            folders = frozenset({self._root, *(self._absolute(folder) for path in states for folder in _parents(path))})
            if folders <= self._folders:
                return states
            self._watch(folders)

    def _absolute(self, folder: str) -> str:
        return os.path.join(self._root, folder)

    def _watch(self, folders: frozenset[str]) -> None:
        from watchfiles import watch

        self._folders = folders
        self._wake = watch(
            *sorted(folders),
            watch_filter=None,
            debounce=_STEP_MS,
            step=_STEP_MS,
            stop_event=self._stop,
            rust_timeout=_STEP_MS * 5,
            yield_on_timeout=True,
            recursive=False,
            ignore_permission_denied=True,
        )
        next(self._wake, None)  # the folders are watched from its first step on


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path

"""Reports that notes changed, without looking at each of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from kept.sessions.transcript_paths import is_transcript
from kept.workspace.ignored import is_ignore_file


class ChangeSignal:
    """The kernel's answer (inotify) to: did anything change in these folders since the last call?

    An event is queued before the system call that caused it returns, so every finished edit is seen. Unlike a watcher
    in another thread, this can replace a scan. Only Linux has it; elsewhere `available` is false.
    """

    def __init__(self, endings: tuple[str, ...] = (".md",)) -> None:
        self._endings = endings
        self._inotify: INotify | None = None
        self._watched: set[str] = set()
        if sys.platform == "linux":
            try:
                from inotify_simple import INotify

                self._inotify = INotify(inheritable=False, nonblocking=True)
            except (ImportError, OSError):
                self._inotify = None  # no inotify instance left: scan instead

    @property
    def available(self) -> bool:
        return self._inotify is not None

    def watch(self, folders: Iterable[str]) -> bool:
        """Watch these folders too. Return True if some are new: their contents were not watched until now."""
        new = set(folders) - self._watched
        if self._inotify is None or not new:
            return False
        from inotify_simple import flags

        mask = (
            flags.CREATE | flags.DELETE | flags.MODIFY | flags.MOVED_FROM | flags.MOVED_TO | flags.ATTRIB
            | flags.CLOSE_WRITE | flags.DELETE_SELF | flags.MOVE_SELF | flags.ONLYDIR
        )  # fmt: skip
        for folder in new:
            try:
                self._inotify.add_watch(folder, mask)
                self._watched.add(folder)
            except FileNotFoundError:
                continue
            except OSError:
                self.close()  # the limit of watches is reached; a partial signal is useless
                return False
        return True

    def changed(self) -> bool:
        """Return whether a note, a transcript or a folder changed since the last call. Without inotify, always True."""
        if self._inotify is None:
            return True
        from inotify_simple import flags

        seen = False
        for event in self._inotify.read(timeout=0):
            about_folder = event.mask & (flags.ISDIR | flags.Q_OVERFLOW | flags.DELETE_SELF | flags.MOVE_SELF)
            if event.mask & (flags.DELETE_SELF | flags.MOVE_SELF | flags.IGNORED):
                self._watched.clear()  # a folder is gone: all are watched again after the next scan
            name = event.name
            if about_folder or name.lower().endswith(self._endings) or is_transcript(name) or is_ignore_file(name):
                seen = True
        return seen

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None
        self._watched.clear()


if sys.platform == "linux":  # only for the annotation above
    from typing import TYPE_CHECKING

    if TYPE_CHECKING:
        from inotify_simple import INotify

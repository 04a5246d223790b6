"""Noticing that notes changed, without looking at each of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from threading import Event

from kept.errors import WorkspaceError
from kept.values import frozen
from kept.workspace.paths import Workspace, is_markdown

_TRANSCRIPT = ".jsonl"


class ChangeSignal:
    """The kernel's word on whether anything changed in some folders since it was last asked.

    An event is queued before the call that caused it returns, so an edit that is done is an edit that is seen: unlike
    a watcher that runs beside, this can take the place of looking. Only Linux has it; elsewhere `available` is false.
    """

    def __init__(self) -> None:
        self._inotify: INotify | None = None
        self._watched: set[str] = set()
        if sys.platform == "linux":
            try:
                from inotify_simple import INotify

                self._inotify = INotify(inheritable=False, nonblocking=True)
            except (ImportError, OSError):
                self._inotify = None  # no more instances to be had: look instead

    @property
    def available(self) -> bool:
        return self._inotify is not None

    def watch(self, folders: Iterable[str]) -> bool:
        """Watches these folders too. True when some of them were new: what they hold was not watched until now."""
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
                self.close()  # the limit of watches is reached: half a signal is none
                return False
        return True

    def changed(self) -> bool:
        """Whether a note, a transcript or a folder changed since the last call. Without a signal, always yes."""
        if self._inotify is None:
            return True
        from inotify_simple import flags

        seen = False
        for event in self._inotify.read(timeout=0):
            about_folder = event.mask & (flags.ISDIR | flags.Q_OVERFLOW | flags.DELETE_SELF | flags.MOVE_SELF)
            if event.mask & (flags.DELETE_SELF | flags.MOVE_SELF | flags.IGNORED):
                self._watched.clear()  # a folder went away: all are watched anew after the next look
            if about_folder or is_markdown(event.name) or event.name.endswith(_TRANSCRIPT):
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


@frozen
class Changes:
    notes: int
    transcripts: int
    removed: int
    """How many of them were removed."""


def require_watcher() -> None:
    """Says at once, and not after the first sync, that what watching needs is not installed."""
    try:
        import watchfiles  # noqa: F401
    except ImportError as exc:
        raise WorkspaceError(
            "Watching needs the package 'watchfiles'.", hint="Install it: pip install 'kept[watch]'"
        ) from exc


def iter_changes(
    workspace: Workspace, *, transcripts: str | None = None, debounce_ms: int, stop: Event
) -> Iterator[Changes]:
    """Yields, each time something has changed and then been quiet for a moment, what did.

    ``transcripts`` is a folder somewhere below which there are some.
    """
    require_watcher()
    from watchfiles import Change, DefaultFilter, watch

    class Notes(DefaultFilter):
        def __call__(self, change: object, path: str) -> bool:
            named = is_markdown(path) or path.endswith(_TRANSCRIPT)
            return named and super().__call__(change, path)  # type: ignore[arg-type]

    wanted = (workspace.root, *workspace.extra_paths, *((transcripts,) if transcripts else ()))
    places = [path for path in wanted if os.path.exists(path)]
    for changes in watch(*places, watch_filter=Notes(), debounce=debounce_ms, stop_event=stop, raise_interrupt=False):
        transcript = sum(path.endswith(_TRANSCRIPT) for _, path in changes)
        removed = sum(change == Change.deleted for change, _ in changes)
        yield Changes(len(changes) - transcript, transcript, removed)

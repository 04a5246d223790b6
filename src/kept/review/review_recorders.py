"""Recorders that stand between a writer of notes and the history: one lists writes, one stops before the write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from kept.digest import digest_bytes
from kept.history.note_history import HistoryRecorder
from kept.review.review_folder import ReviewFolder
from kept.review.review_item import NoteWrite, ReviewItem
from kept.workspace.change_recorder import ChangeKind, recording


class ItemRecorder:
    """Stores each write in an item before the note is written, so that a process that is killed leaves a trace."""

    def __init__(self, folder: ReviewFolder, item: ReviewItem, inner: HistoryRecorder | None) -> None:
        self._folder = folder
        self._inner = inner
        self.item = item
        self.notices: list[str] = inner.notices if inner else []

    @contextmanager
    def writing(
        self, path: str, before: bytes | None, after: bytes | None, *, kind: ChangeKind, was: str | None = None
    ) -> Iterator[None]:
        previous = self.item
        write = NoteWrite(path, _digest(before), _digest(after))
        self.item = replace(previous, path=previous.path or path, writes=(*previous.writes, write))
        self._folder.put(self.item)
        try:
            with recording(self._inner, path, before, after, kind=kind):
                yield
        except Exception:  # nothing was written; a process that is killed leaves the item, which is checked later
            self.item = previous
            if previous.state == "written" and not previous.writes:
                self._folder.remove(previous)
            else:
                self._folder.put(previous)
            raise
        if self._inner and self.item.state == "written":
            # Ids outlive the digests: forgetting a text changes the digests of the versions that had it.
            self.item = replace(self.item, changes=tuple(change.id for change in self._inner.changes))
            self._folder.put(self.item)


class PreviewReady(Exception):
    """Raised in place of the first write of a note."""

    def __init__(self, path: str, before: bytes | None, after: bytes | None) -> None:
        super().__init__(path)
        self.path = path
        self.before = before
        self.after = after


class PreviewRecorder:
    """Stops a writer before it writes, with what it would have written."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def writing(
        self, path: str, before: bytes | None, after: bytes | None, *, kind: ChangeKind, was: str | None = None
    ) -> AbstractContextManager[None]:
        raise PreviewReady(path, before, after)


def _digest(content: bytes | None) -> str | None:
    return None if content is None else digest_bytes(content)

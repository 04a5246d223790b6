"""Items that wait for review, and their files in `.kept/proposals` of the workspace."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Literal

from kept.base.clock import new_id
from kept.base.digest import digest_bytes
from kept.base.file_lock import locked
from kept.base.json_values import from_tree, to_tree
from kept.base.limits import utf8_safe
from kept.base.values import frozen
from kept.errors import NotFound, WorkspaceError
from kept.notes.addition import Addition
from kept.notes.change_recorder import Author, ChangeKind, recording
from kept.notes.history.history_folder import HistoryFolder
from kept.notes.history.note_history import HistoryRecorder
from kept.notes.opened import OpenWorkspace
from kept.notes.workspace import Workspace

ReviewState = Literal["proposed", "written"]
ID_CHARS = 16


@frozen
class ReviewItem:
    id: str
    state: ReviewState
    """``proposed``: not written yet. ``written``: in the note, and listed for review."""
    time: str
    """UTC, such as 2026-11-16T09:30:00.000Z."""
    path: str
    by: Author
    why: str = ""
    addition: Addition | None = None
    """What is proposed. The text of a change that is written is only in the note and its history."""
    changes: tuple[str, ...] = ()
    """Ids that the history has for the changes, once they are recorded. A proposal has one only if a process was killed
    while it was accepted."""

    @property
    def when(self) -> dt.datetime:
        """Return when the agent wrote, in the local time zone."""
        return dt.datetime.fromisoformat(self.time).astimezone()

    def is_from(self, other: ReviewItem) -> bool:
        """Return whether both are from one session or, without a session, from one client."""
        return (self.by.session, self.by.client) == (other.by.session, other.by.client)


def proposal_id(addition: Addition) -> str:
    """Return the id of a proposal: the same text for the same note is the same proposal."""
    fields = [addition.text, addition.to, addition.replaces, addition.project]
    fields += [addition.private] if addition.private is not None else []
    return digest_bytes(json.dumps(fields).encode())[:ID_CHARS]


def is_item_id(text: str) -> bool:
    return len(text) == ID_CHARS and all(char in "0123456789abcdef" for char in text)


# JSON


def format_item(item: ReviewItem) -> bytes:
    """Return the file of an item. Its text is in clear, so that a program that removes words finds them."""
    return utf8_safe(json.dumps(to_tree(item), ensure_ascii=False, indent=1)).encode() + b"\n"


def parse_item(data: bytes, item_id: str) -> ReviewItem:
    """Return an item from its file. Raise ValueError for anything else."""
    try:
        item = from_tree(ReviewItem, json.loads(data))
    except RecursionError as exc:
        raise ValueError(str(exc)) from exc
    if item.id != item_id or (item.state == "proposed") != (item.addition is not None):
        raise ValueError("not an item of a review")
    dt.datetime.fromisoformat(item.time)
    return item


# files

PROPOSALS = "proposals"
MAX_ITEM_BYTES = 4_000_000
LOCK_WAIT_S = 10.0
_MIN_PREFIX = 4


class ReviewFolder:
    """Reads and writes items. No link is followed on the way to them, and new files are private."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._files = HistoryFolder(workspace, base=".kept", title="the review")

    def ids(self) -> list[str]:
        names = (name.removesuffix(".json") for name in self._files.names(PROPOSALS, ".json"))
        return [name for name in names if is_item_id(name)]

    def paths(self) -> list[str]:
        """Return the paths of all files, also of those that cannot be read as items."""
        return [self._files.path(PROPOSALS, name) for name in self._files.names(PROPOSALS, ".json")]

    def find(self, item_id: str) -> ReviewItem | None:
        """Return an item, or None if there is none. Raise ValueError if its file is damaged."""
        if self._files.size(PROPOSALS, f"{item_id}.json") > MAX_ITEM_BYTES:
            raise ValueError("the file is too large")
        data = self._files.read(PROPOSALS, f"{item_id}.json")
        return parse_item(data, item_id) if data else None

    def get(self, prefix: str) -> ReviewItem:
        """Return the item with this id, or with the only id that begins so. Raise NotFound."""
        ids = [item_id for item_id in self.ids() if item_id.startswith(prefix)]
        if len(prefix) < _MIN_PREFIX or not ids:
            raise NotFound(
                f"Nothing with the id '{prefix}' waits for review.", hint="'kept review list' shows what waits."
            )
        if len(ids) > 1:
            raise NotFound(f"{len(ids)} ids begin with '{prefix}'.", hint="Write more of the id.")
        try:
            item = self.find(ids[0])
        except ValueError as exc:
            path = self._files.path(PROPOSALS, f"{ids[0]}.json")
            raise WorkspaceError(f"{path} is damaged: {exc}.", hint="Delete the file. No note is affected.") from exc
        if item is None:
            raise NotFound(
                f"Nothing with the id '{prefix}' waits for review.", hint="'kept review list' shows what waits."
            )
        return item

    def put(self, item: ReviewItem) -> None:
        self._files.replace(PROPOSALS, f"{item.id}.json", format_item(item))

    def remove(self, item: ReviewItem) -> None:
        self._files.remove(PROPOSALS, f"{item.id}.json")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the review. The lock of the workspace may be taken inside it, never the other way round."""
        path = self._files.path(PROPOSALS, "x.json")
        with OpenWorkspace(self._workspace) as opened:
            opened.folder_to_write(path)
        lock, purpose = self._files.path(PROPOSALS), "reviewing changes of this workspace"
        with locked(lock, wait_s=LOCK_WAIT_S, purpose=purpose):
            yield


# recorders between a writer of notes and the history: one lists writes, one stops before the write


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
        previous, change_id = self.item, new_id()
        self.item = replace(previous, path=previous.path or path, changes=(*previous.changes, change_id))
        self._folder.put(self.item)
        if self._inner:
            self._inner.next_id = change_id
        try:
            with recording(self._inner, path, before, after, kind=kind):
                yield
        except Exception:  # nothing was written; a process that is killed leaves the item, which is checked later
            self.item = previous
            if previous.state == "written" and not previous.changes:
                self._folder.remove(previous)
            else:
                self._folder.put(previous)
            raise

    def join(self) -> None:
        if self._inner:
            self._inner.join()


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

    def join(self) -> None:
        pass  # it stops before the first change

    def writing(
        self, path: str, before: bytes | None, after: bytes | None, *, kind: ChangeKind, was: str | None = None
    ) -> AbstractContextManager[None]:
        raise PreviewReady(path, before, after)

"""The files of items that wait for review, in `.kept/proposals` of the workspace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kept.errors import ReviewItemNotFound, WorkspaceError
from kept.file_lock import locked
from kept.history.history_folder import HistoryFolder
from kept.review.review_item import ReviewItem, format_item, is_item_id, parse_item
from kept.workspace.opened import OpenWorkspace
from kept.workspace.workspace import Workspace

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
        """Return the item with this id, or with the only id that begins so. Raise ReviewItemNotFound."""
        ids = [item_id for item_id in self.ids() if item_id.startswith(prefix)]
        if len(prefix) < _MIN_PREFIX or not ids:
            raise ReviewItemNotFound(f"Nothing with the id '{prefix}' waits for review.")
        if len(ids) > 1:
            raise ReviewItemNotFound(f"{len(ids)} ids begin with '{prefix}'.", hint="Write more of the id.")
        try:
            item = self.find(ids[0])
        except ValueError as exc:
            path = self._files.path(PROPOSALS, f"{ids[0]}.json")
            raise WorkspaceError(f"{path} is damaged: {exc}.", hint="Delete the file. No note is affected.") from exc
        if item is None:
            raise ReviewItemNotFound(f"Nothing with the id '{prefix}' waits for review.")
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

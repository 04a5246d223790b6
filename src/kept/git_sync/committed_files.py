"""Files of a workspace and of a commit: which differ, and which of a commit are taken.

What .gitignore names stays, as does the history of the notes: git has one, each machine records what it merged, and a
text that was forgotten here must not come back from a copy. Of what is listed for review, only proposals travel.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from kept.config.schema import GitSyncSettings, WorkspaceLayout
from kept.durable import write_atomic
from kept.errors import KeptError, PathRefused, WorkspaceError
from kept.git_sync.git_objects import FILE_MODES, Tree, TreeEntry, object_id
from kept.review.review_item import parse_item
from kept.values import frozen
from kept.working_copy.synced_files import PROPOSALS_FOLDER, TICK_NS, FileChange, FileRules, SyncedFiles
from kept.workspace.opened import OpenWorkspace
from kept.workspace.workspace import Workspace

FilterIgnored = Callable[[list[str]], set[str]]
"""Function that returns which of some paths .gitignore leaves out."""


class CommittedFiles(SyncedFiles):
    """The files of a workspace that travel over git."""

    def __init__(self, workspace: Workspace, settings: GitSyncSettings) -> None:
        super().__init__(workspace, FileRules(settings.private, settings.max_file_bytes))

    def accepts(self, path: str, entry: TreeEntry | None = None) -> bool:
        """Return whether a file may be written here and sent from here, by its path and, in a commit, its kind."""
        if entry is not None and (entry.mode not in FILE_MODES or entry.size > self.rules.max_file_bytes):
            return False
        return self.accepts_path(path)

    def report_refused(self, tree: Tree) -> None:
        """Report the files of a commit that look like notes and are not taken."""
        for path, entry in tree.items():
            if not self.accepts(path) or self.accepts(path, entry):
                continue
            if entry.mode in FILE_MODES:
                limit = self.rules.max_file_bytes
                self.report(path, f"{entry.size:,} bytes, more than the limit of {limit:,}; not taken from the remote")
            else:
                self.report(path, "is a link or a submodule; not taken from the remote")

    def find_changes(
        self, opened: OpenWorkspace, tree: Tree, cache: StateCache, filter_ignored: FilterIgnored
    ) -> Iterator[FileChange]:
        """Yield the files that differ from a commit. A file whose state is known is not read."""
        present = set(self.list_paths(opened))
        ignored = filter_ignored([path for path in present if path not in tree])
        for path in sorted(present - ignored):
            yield from self._compare(opened, path, tree.get(path), cache)
        for path, entry in sorted(tree.items()):
            if path not in present and self.accepts(path, entry):
                yield from self._compare(opened, path, entry, cache)

    def _compare(
        self, opened: OpenWorkspace, path: str, entry: TreeEntry | None, cache: StateCache
    ) -> Iterator[FileChange]:
        if entry is not None and not self.accepts(path, entry):
            return
        try:
            try:
                state = opened.find_state(self.absolute(path))
            except PathRefused as exc:
                if not isinstance(exc.__cause__, NotADirectoryError):
                    raise
                state = None
            if state is not None and state.st_size > self.rules.max_file_bytes:
                limit = self.rules.max_file_bytes
                self.report(path, f"{state.st_size:,} bytes, more than the limit of {limit:,}; not sent")
                return
            if state is not None and entry is not None and cache.find(path, state) == entry.oid:
                return
            checked_ns = time.time_ns()
            data = None if state is None else self.read(opened, path)
        except WorkspaceError as exc:
            self.report(path, f"not sent: {exc.message}")
            return
        if data is None:
            if entry is not None:
                yield FileChange(path, None)
            return
        oid = cache.keep(path, state, data, checked_ns)
        if (entry is None or oid != entry.oid) and (not path.startswith(PROPOSALS_FOLDER) or _may_travel(path, data)):
            yield FileChange(path, data)


def _may_travel(path: str, data: bytes) -> bool:
    """Return whether an item waits for a decision that any machine can make: it is not written here already."""
    try:
        item = parse_item(data, path.rpartition("/")[2].removesuffix(".json"))
    except ValueError:
        return False
    return item.state == "proposed" and not item.writes


@frozen
class SyncRules:
    """Settings that decide which files are taken. With other ones, files of the last commit may not be here yet."""

    layout: WorkspaceLayout
    private: bool
    max_file_bytes: int

    @classmethod
    def of(cls, workspace: Workspace, settings: GitSyncSettings) -> SyncRules:
        return cls(workspace.layout, settings.private, settings.max_file_bytes)

    @classmethod
    def load(cls, path: str) -> SyncRules | None:
        """Return the rules of the last sync, or None if there was none."""
        try:
            with open(path, "rb") as file:
                fields = json.load(file)
            layout: WorkspaceLayout = "vault" if fields["layout"] == "vault" else "kept"
            return cls(layout, bool(fields["private"]), int(fields["max_file_bytes"]))
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None

    def save(self, path: str) -> None:
        fields = {"layout": self.layout, "private": self.private, "max_file_bytes": self.max_file_bytes}
        write_atomic(path, json.dumps(fields).encode())

    def files(self, workspace: Workspace, settings: GitSyncSettings) -> CommittedFiles:
        settings = replace(settings, private=self.private, max_file_bytes=self.max_file_bytes)
        return CommittedFiles(replace(workspace, layout=self.layout), settings)


class StateCache:
    """Names of files in git by their states, so that a file that did not change is not read again. Derived."""

    def __init__(self, path: str, algorithm: str) -> None:
        self._path = path
        self._algorithm = algorithm
        self._known: dict[str, list[int | str]] = {}
        self._kept: dict[str, list[int | str]] = {}
        try:
            with open(path, "rb") as file:
                known = json.load(file)
            self._known = known if isinstance(known, dict) else {}
        except (OSError, ValueError, RecursionError):
            pass

    def find(self, path: str, state: os.stat_result) -> str | None:
        row = self._known.get(path)
        if not isinstance(row, list) or row[:-1] != _state_row(state) or not isinstance(row[-1], str):
            return None
        self._kept[path] = row
        return row[-1]

    def keep(self, path: str, state: os.stat_result | None, data: bytes, checked_ns: int) -> str:
        """Return the name of a file in git, and remember it unless the file may change without a new time."""
        oid = object_id(data, self._algorithm)
        if state is not None and max(state.st_mtime_ns, state.st_ctime_ns) < checked_ns - TICK_NS:
            self._kept[path] = [*_state_row(state), oid]
        return oid

    def save(self) -> None:
        if self._kept != self._known:
            try:
                write_atomic(self._path, json.dumps(self._kept).encode())
            except KeptError:
                pass  # then files are read again
            self._known = dict(self._kept)


def _state_row(state: os.stat_result) -> list[int | str]:
    return [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]

"""Files of a workspace that are shared with a team, and their state now.

Notes travel, with the files among them, `.gitignore`, `.keptignore`, `.kept.yaml`, and proposals that wait for a
person. The history of the notes does not: git has one, each machine records what it merged, and a text that was
forgotten here must not come back from a copy. Hidden files of other programs stay where they are, as do links, and
what .gitignore names. The same rules decide what is sent and what is accepted.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from kept.config.schema import GitSyncSettings, WorkspaceLayout
from kept.durable import is_temporary, write_atomic
from kept.errors import KeptError, NoteNotFound, PathRefused, WorkspaceError
from kept.git_sync.git_objects import FILE_MODES, Tree, TreeEntry, object_id
from kept.limits import is_utf8, printable_line
from kept.records import Problem
from kept.review.review_item import is_item_id, parse_item
from kept.values import frozen
from kept.workspace.opened import OpenWorkspace
from kept.workspace.scan import scan_workspace
from kept.workspace.workspace import (
    MAX_NAME_BYTES,
    MAX_PATH_BYTES,
    MEMORY_FOLDER,
    ROOT_NOTES,
    Workspace,
    is_skipped_folder,
    is_visible,
)

PROPOSALS_FOLDER = ".kept/proposals"
PRIVATE_FOLDER = f"{MEMORY_FOLDER}/private"
SETTINGS_FILES = (".gitignore", ".keptignore", ".kept.yaml")
_ANY_SIZE = 1 << 62
_TICK_NS = 50_000_000
"""Longer than a tick of the clock that file systems stamp changes with."""
FilterIgnored = Callable[[list[str]], set[str]]
"""Function that returns which of some paths .gitignore leaves out."""


@frozen
class FileChange:
    """A file of the workspace that differs from a commit. ``data`` is None if it is gone."""

    path: str
    data: bytes | None


class SyncedFiles:
    """The files of a workspace that travel."""

    def __init__(self, workspace: Workspace, settings: GitSyncSettings) -> None:
        self.workspace = replace(workspace, extra_paths=())
        self._settings = settings
        self.problems: list[Problem] = []

    # rules

    def accepts(self, path: str, entry: TreeEntry | None = None) -> bool:
        """Return whether a file may be written here and sent from here, by its path and, in a commit, its kind."""
        if entry is not None and (entry.mode not in FILE_MODES or entry.size > self._settings.max_file_bytes):
            return False
        parts = path.split("/")
        if not _is_plain(path, parts) or is_temporary(parts[-1]):
            return False
        if path in SETTINGS_FILES:
            return True
        if len(parts) == 3 and path.startswith(f"{PROPOSALS_FOLDER}/"):
            return path.endswith(".json") and is_item_id(parts[2].removesuffix(".json"))
        if path.startswith(f"{PRIVATE_FOLDER}/") and not self._settings.private:
            return False
        *folders, name = parts
        if not all(map(is_visible, folders)) or not (is_visible(name) or name in SETTINGS_FILES[:2]):
            return False
        if self.workspace.layout == "kept":
            return path in ROOT_NOTES or path.startswith(f"{MEMORY_FOLDER}/")
        return not any(is_skipped_folder("/".join(parts[:count])) for count in range(1, len(parts)))

    def report_refused(self, tree: Tree) -> None:
        """Report the files of a commit that look like notes and are not taken."""
        for path, entry in tree.items():
            if not self.accepts(path) or self.accepts(path, entry):
                continue
            if entry.mode in FILE_MODES:
                limit = self._settings.max_file_bytes
                self._report(path, f"{entry.size:,} bytes, more than the limit of {limit:,}; not taken from the remote")
            else:
                self._report(path, "is a link or a submodule; not taken from the remote")

    def is_note(self, path: str) -> bool:
        return self.workspace.is_own_note(self.absolute(path))

    def absolute(self, path: str) -> str:
        return os.path.join(self.workspace.root, *path.split("/"))

    # reading

    def read(self, opened: OpenWorkspace, path: str) -> bytes | None:
        """Return the bytes of a file, or None if there is none. Raise WorkspaceError if it cannot be read."""
        absolute = self.absolute(path)
        try:
            if opened.find_state(absolute) is None:
                return None
            return opened.read_found(absolute, max_bytes=_ANY_SIZE).raw
        except NoteNotFound:
            return None
        except PathRefused as exc:
            if isinstance(exc.__cause__, NotADirectoryError):  # a file is where its folder was
                return None
            raise

    def find_changes(
        self, opened: OpenWorkspace, tree: Tree, cache: StateCache, filter_ignored: FilterIgnored
    ) -> Iterator[FileChange]:
        """Yield the files that differ from a commit. A file whose state is known is not read."""
        present = self._list(opened)
        ignored = filter_ignored([path for path in present if path not in tree])
        for path in sorted(present.keys() - ignored):
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
            if state is not None and state.st_size > self._settings.max_file_bytes:
                limit = self._settings.max_file_bytes
                self._report(path, f"{state.st_size:,} bytes, more than the limit of {limit:,}; not sent")
                return
            if state is not None and entry is not None and cache.find(path, state) == entry.oid:
                return
            checked_ns = time.time_ns()
            data = None if state is None else self.read(opened, path)
        except WorkspaceError as exc:
            self._report(path, f"not sent: {exc.message}")
            return
        if data is None:
            if entry is not None:
                yield FileChange(path, None)
            return
        oid = cache.keep(path, state, data, checked_ns)
        if (entry is None or oid != entry.oid) and (not path.startswith(PROPOSALS_FOLDER) or _may_travel(path, data)):
            yield FileChange(path, data)

    def _list(self, opened: OpenWorkspace) -> dict[str, os.stat_result | None]:
        """Return the paths of the files that are here and may be sent."""
        scan = scan_workspace(replace(self.workspace, endings=("",)), max_bytes=_ANY_SIZE)
        for problem in scan.problems:
            self._report(problem.path, problem.reason)
        paths = [file.path for file in scan.files]
        paths += [
            self.workspace.cite(os.path.join(folder, name)) for folder in scan.folders for name in SETTINGS_FILES[:2]
        ]
        paths += [*SETTINGS_FILES, *(f"{PROPOSALS_FOLDER}/{name}" for name in self._proposals(opened))]
        return {path: None for path in paths if self.accepts(path) and self._is_file(path)}

    def _is_file(self, path: str) -> bool:
        try:
            return stat.S_ISREG(os.lstat(self.absolute(path)).st_mode)
        except OSError:
            return False

    def _proposals(self, opened: OpenWorkspace) -> list[str]:
        try:
            handle = opened.open_to_list(self.absolute(PROPOSALS_FOLDER))
        except OSError:
            return []
        try:
            return os.listdir(handle)
        finally:
            os.close(handle)

    def _report(self, path: str, reason: str) -> None:
        problem = Problem(printable_line(path), reason)
        if problem not in self.problems:
            self.problems.append(problem)


def _is_plain(path: str, parts: list[str]) -> bool:
    """Return whether a path can only lead to a place below the workspace."""
    if not is_utf8(path) or "\0" in path or any(part in ("", ".", "..") for part in parts):
        return False
    encoded = [part.encode() for part in parts]
    return all(len(part) <= MAX_NAME_BYTES for part in encoded) and len(path.encode()) <= MAX_PATH_BYTES // 2


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

    def files(self, workspace: Workspace, settings: GitSyncSettings) -> SyncedFiles:
        settings = replace(settings, private=self.private, max_file_bytes=self.max_file_bytes)
        return SyncedFiles(replace(workspace, layout=self.layout), settings)


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
        if state is not None and max(state.st_mtime_ns, state.st_ctime_ns) < checked_ns - _TICK_NS:
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

"""Files of a workspace that are shared with a team.

Notes travel, with the files among them, `.gitignore`, `.keptignore`, `.kept.yaml`, and what waits for the review of a
person. Hidden files of other programs stay where they are, as do links. The same rules decide what is sent and what is
accepted.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace

from kept.durable import is_temporary
from kept.errors import NoteNotFound, PathRefused
from kept.limits import is_utf8, printable_line
from kept.records import Problem
from kept.review.review_item import is_item_id
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
TICK_NS = 50_000_000
"""Longer than a tick of the clock that file systems stamp changes with."""


@frozen
class FileRules:
    """Settings that decide which files travel."""

    private: bool
    """Whether `memory/private` does."""
    max_file_bytes: int


@frozen
class FileChange:
    """A file of the workspace that differs from what was shared last. ``data`` is None if it is gone."""

    path: str
    data: bytes | None


class SyncedFiles:
    """The files of a workspace that travel."""

    def __init__(self, workspace: Workspace, rules: FileRules) -> None:
        self.workspace = replace(workspace, extra_paths=())
        self.rules = rules
        self.problems: list[Problem] = []

    # rules

    def accepts_path(self, path: str) -> bool:
        """Return whether a file may be written here and sent from here, by its path."""
        parts = path.split("/")
        if not _is_plain(path, parts) or is_temporary(parts[-1]):
            return False
        if path in SETTINGS_FILES:
            return True
        if len(parts) == 3 and path.startswith(f"{PROPOSALS_FOLDER}/"):
            return path.endswith(".json") and is_item_id(parts[2].removesuffix(".json"))
        if path.startswith(f"{PRIVATE_FOLDER}/") and not self.rules.private:
            return False
        *folders, name = parts
        if not all(map(is_visible, folders)) or not (is_visible(name) or name in SETTINGS_FILES[:2]):
            return False
        if self.workspace.layout == "kept":
            return path in ROOT_NOTES or path.startswith(f"{MEMORY_FOLDER}/")
        return not any(is_skipped_folder("/".join(parts[:count])) for count in range(1, len(parts)))

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

    def list_paths(self, opened: OpenWorkspace) -> list[str]:
        """Return the paths of the files that are here and may be sent."""
        scan = scan_workspace(replace(self.workspace, endings=("",)), max_bytes=_ANY_SIZE)
        for problem in scan.problems:
            self.report(problem.path, problem.reason)
        paths = [file.path for file in scan.files]
        paths += [
            self.workspace.cite(os.path.join(folder, name)) for folder in scan.folders for name in SETTINGS_FILES[:2]
        ]
        paths += [*SETTINGS_FILES, *(f"{PROPOSALS_FOLDER}/{name}" for name in self._proposals(opened))]
        return [path for path in dict.fromkeys(paths) if self.accepts_path(path) and self._is_file(path)]

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

    def report(self, path: str, reason: str) -> None:
        problem = Problem(printable_line(path), reason)
        if problem not in self.problems:
            self.problems.append(problem)


def _is_plain(path: str, parts: list[str]) -> bool:
    """Return whether a path can only lead to a place below the workspace."""
    if not is_utf8(path) or "\0" in path or any(part in ("", ".", "..") for part in parts):
        return False
    encoded = [part.encode() for part in parts]
    return all(len(part) <= MAX_NAME_BYTES for part in encoded) and len(path.encode()) <= MAX_PATH_BYTES // 2

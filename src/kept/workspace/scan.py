"""Discovery: which notes there are, from their names and states alone. Nothing is read here."""

from __future__ import annotations

import errno
import os
import stat
from operator import itemgetter

from kept.limits import int64
from kept.records import Problem, SourceFile
from kept.values import frozen
from kept.workspace.opened import OpenWorkspace
from kept.workspace.paths import MEMORY_FOLDER, ROOT_NOTES, Workspace, find_name_fault, is_markdown, is_visible

_Entry = tuple[str, str, os.stat_result | None]
"""The absolute path of a file or folder, the path it is cited by, and its state; None for a folder."""
_by_path = itemgetter(0)


@frozen
class Scan:
    files: tuple[SourceFile, ...]
    problems: tuple[Problem, ...]
    folders: tuple[str, ...]
    """Every folder whose entries were looked at: what a watcher has to watch."""


def scan_workspace(workspace: Workspace, *, max_bytes: int) -> Scan:
    """Symbolic links are excluded, and a file that can be reached by two names is taken once."""
    with OpenWorkspace(workspace) as opened:
        walk = _Walk(workspace, opened, max_bytes)
        walk.root_notes()
        walk.memory_folder()
        for extra in workspace.extra_paths:
            walk.extra(extra)
    return Scan(tuple(walk.found.values()), tuple(walk.problems), tuple(walk.folders))


class _Walk:
    def __init__(self, workspace: Workspace, opened: OpenWorkspace, max_bytes: int) -> None:
        self.workspace = workspace
        self.opened = opened
        self.max_bytes = max_bytes
        # Keyed by device and inode: the same file under two names, which is what MEMORY.md and memory.md are
        # on a file system that ignores case, is one file.
        self.found: dict[tuple[int, int], SourceFile] = {}
        self.problems: list[Problem] = []
        self.folders: list[str] = []

    def root_notes(self) -> None:
        root = self.workspace.root
        self.folders.append(root)
        try:
            handle = self.opened.open_to_list(root)
            try:
                present = set(os.listdir(handle))
            finally:
                os.close(handle)
        except OSError as exc:
            self.problem(root, f"cannot be listed ({exc.strerror})")
            return
        for name in ROOT_NOTES:
            if name in present:
                self.single(os.path.join(root, name))

    def memory_folder(self) -> None:
        self.folder(os.path.join(self.workspace.root, MEMORY_FOLDER))

    def extra(self, path: str) -> None:
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            self.problem(path, "extra path does not exist")
            return
        if stat.S_ISLNK(mode):
            self.problem(path, "extra path is a symbolic link, which is not followed")
        elif stat.S_ISDIR(mode):
            self.folder(path)
        elif is_markdown(path):
            self.folders.append(os.path.dirname(path))
            self.single(path)
        else:
            self.problem(path, "extra path is neither a folder nor Markdown")

    def folder(self, path: str) -> None:
        """Depth first, and not by recursion: folders may lie deeper than Python's stack is high."""
        open_folders = [iter(self.entries(path, self.workspace.cite(path + os.sep)))]
        while open_folders:
            for absolute, cited, state in open_folders[-1]:
                if state is None:
                    open_folders.append(iter(self.entries(absolute, cited + "/")))
                    break
                self.file(absolute, cited, state)
            else:
                open_folders.pop()

    def entries(self, path: str, cited: str) -> list[_Entry]:
        """What is in a folder and may be a note or hold some, by name. It is cited with that in front."""
        try:
            handle = self.opened.open_to_list(path)
            try:
                entries = self.look_into(handle, path + os.sep, cited)
            finally:
                os.close(handle)
        except FileNotFoundError:
            return []
        except OSError as exc:
            is_link = exc.errno == errno.ELOOP
            reason = "is a symbolic link, which is not followed" if is_link else f"cannot be listed ({exc.strerror})"
            self.problem(path, reason)
            return []
        self.folders.append(path)
        entries.sort(key=_by_path)
        return entries

    def look_into(self, handle: int, path: str, cited: str) -> list[_Entry]:
        """States are taken while the folder is open, so they are of files in it and nowhere else."""
        entries: list[_Entry] = []
        with os.scandir(handle) as listing:
            for entry in listing:
                name = entry.name
                if not is_visible(name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    entries.append((path + name, cited + name, None))
                elif is_markdown(name):
                    try:
                        entries.append((path + name, cited + name, entry.stat(follow_symlinks=False)))
                    except FileNotFoundError:
                        continue
                    except OSError as exc:
                        self.problem(path + name, f"cannot be looked at ({exc.strerror})")
        return entries

    def single(self, absolute: str) -> None:
        """A note that is named and not come upon."""
        try:
            folder = self.opened.folder_of(absolute)
            state = os.stat(os.path.basename(absolute), dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return
        except OSError as exc:
            self.problem(absolute, f"cannot be looked at ({exc.strerror})")
            return
        self.file(absolute, self.workspace.cite(absolute), state)

    def file(self, absolute: str, cited: str, state: os.stat_result) -> None:
        if not stat.S_ISREG(state.st_mode):
            return
        fault = find_name_fault(absolute, cited)
        if fault:
            self.problem(absolute, fault)
            return
        if state.st_size > self.max_bytes:
            self.problem(absolute, f"{state.st_size:,} bytes, more than the limit of {self.max_bytes:,}; not indexed")
            return
        times = int64(state.st_mtime_ns), int64(state.st_ctime_ns)
        self.found.setdefault(
            (state.st_dev, state.st_ino), SourceFile(cited, absolute, "memory", state.st_size, *times)
        )

    def problem(self, path: str, reason: str) -> None:
        shown = self.workspace.cite(path).encode("utf-8", "replace").decode()
        self.problems.append(Problem(shown, reason))

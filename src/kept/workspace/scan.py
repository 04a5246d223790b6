"""Discovery: which notes there are, from their names and states alone. Nothing is read here."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from kept.limits import int64
from kept.records import Problem, SourceFile
from kept.values import frozen
from kept.workspace.paths import MEMORY_FOLDER, ROOT_NOTES, Workspace, is_markdown


@frozen
class Scan:
    files: tuple[SourceFile, ...]
    problems: tuple[Problem, ...]
    folders: tuple[str, ...]
    """Every folder whose entries were looked at: what a watcher has to watch."""


def scan_workspace(workspace: Workspace, *, max_bytes: int) -> Scan:
    """Symbolic links are excluded, and a file that can be reached by two names is taken once."""
    walk = _Walk(workspace, max_bytes)
    walk.root_notes()
    walk.memory_folder()
    for extra in workspace.extra_paths:
        walk.extra(extra)
    return Scan(tuple(walk.found.values()), tuple(walk.problems), tuple(walk.folders))


class _Walk:
    def __init__(self, workspace: Workspace, max_bytes: int) -> None:
        self.workspace = workspace
        self.max_bytes = max_bytes
        # Keyed by device and inode: the same file under two names, which is what MEMORY.md and memory.md are
        # on a file system that ignores case, is one file.
        self.found: dict[tuple[int, int], SourceFile] = {}
        self.problems: list[Problem] = []
        self.folders: list[str] = []

    def root_notes(self) -> None:
        self.folders.append(self.workspace.root)
        try:
            present = set(os.listdir(self.workspace.root))
        except OSError as exc:
            self.problem(self.workspace.root, f"cannot be listed ({exc.strerror})")
            return
        for name in ROOT_NOTES:
            if name in present:
                self.file(os.path.join(self.workspace.root, name))

    def memory_folder(self) -> None:
        path = os.path.join(self.workspace.root, MEMORY_FOLDER)
        if os.path.islink(path):
            self.problem(path, "is a symbolic link, which is not followed")
        else:
            self.folder(path)

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
            self.file(path)
        else:
            self.problem(path, "extra path is neither a folder nor Markdown")

    def folder(self, path: str) -> None:
        """Depth first, and not by recursion: folders may lie deeper than Python's stack is high."""
        open_folders = [self.entries(path)]
        while open_folders:
            for entry in open_folders[-1]:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    open_folders.append(self.entries(entry.path))
                    break
                if is_markdown(entry.name):
                    self.file(entry.path, entry)
            else:
                open_folders.pop()

    def entries(self, path: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(path) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        except OSError as exc:
            self.problem(path, f"cannot be listed ({exc.strerror})")
            return
        self.folders.append(path)
        yield from entries

    def file(self, path: str, entry: os.DirEntry[str] | None = None) -> None:
        try:
            state = entry.stat(follow_symlinks=False) if entry else os.lstat(path)
        except FileNotFoundError:
            return
        except OSError as exc:
            self.problem(path, f"cannot be looked at ({exc.strerror})")
            return
        if not stat.S_ISREG(state.st_mode):
            return
        cited = self.workspace.cite(path)
        if not cited.isascii() and not _is_utf8(cited):
            self.problem(path, "its name is not valid UTF-8")
            return
        if state.st_size > self.max_bytes:
            self.problem(path, f"{state.st_size:,} bytes, more than the limit of {self.max_bytes:,}; not indexed")
            return
        self.found.setdefault(
            (state.st_dev, state.st_ino),
            SourceFile(
                path=cited,
                absolute=path,
                source="memory",
                size=state.st_size,
                mtime_ns=int64(state.st_mtime_ns),
                ctime_ns=int64(state.st_ctime_ns),
            ),
        )

    def problem(self, path: str, reason: str) -> None:
        shown = self.workspace.cite(path).encode("utf-8", "replace").decode()
        self.problems.append(Problem(shown, reason))


def _is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True

"""Discovery: finds the notes there are, by their names and file states, and tells when to look again."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterable
from operator import itemgetter
from typing import TYPE_CHECKING

from kept.base.limits import INT64_MAX, int64, utf8_safe
from kept.base.records import Problem, SourceFile
from kept.base.values import frozen
from kept.notes.opened import OpenWorkspace
from kept.notes.workspace import (
    IGNORE_FILES,
    MEMORY_FOLDER,
    ROOT_NOTES,
    SURELY_SHORT,
    Workspace,
    find_name_fault,
    is_skipped_folder,
)
from kept.sessions.transcript_paths import is_transcript

if TYPE_CHECKING:
    from inotify_simple import INotify

    from kept.notes.ignored import IgnoreRules


_Entry = tuple[str, str, os.stat_result | None]
"""Absolute path of a file or folder, the path it is cited by, and its state, which is None for a folder."""
_by_path = itemgetter(0)


@frozen
class Scan:
    files: tuple[SourceFile, ...]
    problems: tuple[Problem, ...]
    folders: tuple[str, ...]
    """Every folder that was listed. A watcher has to watch these."""
    only: frozenset[tuple[str, str]] | None = None
    """Source and path of the only files that were looked at, whether they still exist or not; None for all."""


def scan_workspace(workspace: Workspace, *, max_bytes: int) -> Scan:
    """Return the notes of a workspace. Symbolic links are excluded, and a file with two names is listed once."""
    with OpenWorkspace(workspace) as opened:
        walk = _Walk(workspace, opened, max_bytes)
        if workspace.layout == "vault":
            walk.vault()
        else:
            walk.root_notes()
            walk.folder(os.path.join(workspace.root, MEMORY_FOLDER))
        for extra in workspace.extra_paths:
            walk.extra(extra)
    return Scan(tuple(walk.files.values()), tuple(walk.problems), tuple(walk.folders))


class _Walk:
    def __init__(self, workspace: Workspace, opened: OpenWorkspace, max_bytes: int) -> None:
        self.workspace = workspace
        self.opened = opened
        self.max_bytes = max_bytes
        # Keyed by device and inode: MEMORY.md and memory.md are one file on a file system that ignores case.
        self.files: dict[tuple[int, int], SourceFile] = {}
        self.problems: list[Problem] = []
        self.folders: list[str] = []
        self.rules: IgnoreRules | None = None
        """Patterns that leave out files and folders, during the walk through a vault."""

    def vault(self) -> None:
        from kept.notes.ignored import IgnoreRules

        self.rules = IgnoreRules(self.opened, self.workspace, report=self.problem)
        self.folder(self.workspace.root)
        self.rules = None

    def root_notes(self) -> None:
        root = self.workspace.root
        self.folders.append(root)
        try:
            present = {name for name, _, _ in self.opened.list_folder(root)}
        except OSError as exc:
            self.problem(root, f"cannot be listed ({exc.strerror})")
            return
        for name in ROOT_NOTES:
            if name in present:
                self.single(os.path.join(root, name))

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
        elif self.workspace.is_note_file(path):
            self.folders.append(os.path.dirname(path))
            self.single(path)
        else:
            self.problem(path, "extra path is neither a folder nor Markdown")

    def folder(self, path: str) -> None:
        """Walk a folder depth first, without recursion: folders may be nested deeper than Python's stack."""
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
        """Return the notes and subfolders of a folder, sorted. ``cited`` is the prefix of their citations."""
        try:
            handle = self.opened.open_to_list(path)
            try:
                entries = self.list_entries(handle, path + os.sep, cited)
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

    def list_entries(self, handle: int, path: str, cited: str) -> list[_Entry]:
        """Return the entries of an open folder. States are read through its handle, so no link can redirect them."""
        entries: list[_Entry] = []
        hidden: list[str] = []
        endings = self.workspace.endings
        with os.scandir(handle) as listing:
            for entry in listing:
                name = entry.name
                if name.startswith("."):  # not `is_visible`: a call for each file of a large vault is felt
                    hidden.append(name)
                elif entry.is_dir(follow_symlinks=False):
                    entries.append((path + name, cited + name, None))
                elif name.lower().endswith(endings):
                    try:
                        entries.append((path + name, cited + name, entry.stat(follow_symlinks=False)))
                    except FileNotFoundError:
                        continue
                    except OSError as exc:
                        self.problem(path + name, f"cannot be looked at ({exc.strerror})")
        return entries if self.rules is None else _select(self.rules, path[:-1], entries, hidden)

    def single(self, absolute: str) -> None:
        """Add a note that is known by name, without listing its folder."""
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
        size, mtime_ns, ctime_ns = state.st_size, state.st_mtime_ns, state.st_ctime_ns
        is_plain = cited.isascii() and len(absolute) <= SURELY_SHORT
        fault = None if is_plain else find_name_fault(absolute, cited)
        if fault:
            self.problem(absolute, fault)
            return
        if size > self.max_bytes:
            self.problem(absolute, f"{size:,} bytes, more than the limit of {self.max_bytes:,}; not indexed")
            return
        if not (0 <= mtime_ns <= INT64_MAX and 0 <= ctime_ns <= INT64_MAX):
            mtime_ns, ctime_ns = int64(mtime_ns), int64(ctime_ns)
        file = SourceFile(cited, absolute, "memory", size, mtime_ns, ctime_ns)
        self.files.setdefault((state.st_dev, state.st_ino), file)

    def problem(self, path: str, reason: str) -> None:
        shown = utf8_safe(self.workspace.cite(path))
        self.problems.append(Problem(shown, reason))


def _select(rules: IgnoreRules, folder: str, entries: list[_Entry], hidden: list[str]) -> list[_Entry]:
    """Return the entries of a vault's folder that are not left out. ``hidden`` are the names that begin with a dot."""
    has_patterns = rules.enter(folder, hidden)
    if has_patterns:
        tests_files = rules.may_match_notes(folder)
        entries = [
            entry
            for entry in entries
            if (entry[2] is not None and not tests_files)
            or not rules.is_ignored(folder, entry[0].rpartition(os.sep)[2], is_folder=entry[2] is None)
        ]
    return [entry for entry in entries if entry[2] is not None or not is_skipped_folder(entry[1])]


# changes

ANY_FILE = ""


class ChangeSignal:
    """The kernel's answer (inotify) to: what changed in these folders since the last call?

    An event is queued before the system call that caused it returns, so every finished edit is seen. Unlike a watcher
    in another thread, this can replace a scan. Only Linux has it; elsewhere `available` is false.
    """

    def __init__(self, endings: tuple[str, ...] = (".md",)) -> None:
        self._endings = endings
        self._inotify: INotify | None = None
        self._watched: dict[int, str] = {}
        """Folders by the number of their watch."""
        self._tops: dict[str, tuple[int, int]] = {}
        """Device and inode of each watched folder whose parent is not watched: the parent may be moved unnoticed."""
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
        new = set(folders).difference(self._watched.values())
        if self._inotify is None or not new:
            return False
        from inotify_simple import flags

        mask = (
            flags.CREATE | flags.DELETE | flags.MODIFY | flags.MOVED_FROM | flags.MOVED_TO | flags.ATTRIB
            | flags.CLOSE_WRITE | flags.DELETE_SELF | flags.MOVE_SELF | flags.ONLYDIR
        )  # fmt: skip
        for folder in new:
            try:
                self._watched[self._inotify.add_watch(folder, mask)] = folder
            except FileNotFoundError:
                continue
            except OSError:
                self.close()  # the limit of watches is reached; a partial signal is useless
                return False
        self._note_places()
        return True

    def _note_places(self) -> None:
        self._tops.clear()
        folders = set(self._watched.values())
        for folder in folders:
            if os.path.dirname(folder) not in folders and (place := _place(folder)):
                self._tops[folder] = place

    def read_changes(self) -> set[str]:
        """Return the paths of notes and transcripts that changed since the last call.

        ANY_FILE stands for a folder and for whatever else may have changed. Without inotify, it is always returned.
        """
        if self._inotify is None:
            return {ANY_FILE}
        from inotify_simple import flags

        changes: set[str] = set()
        if any(_place(folder) != place for folder, place in self._tops.items()):
            changes.add(ANY_FILE)
            self._watched.clear()
        for event in self._inotify.read(timeout=0):
            about_folder = event.mask & (flags.ISDIR | flags.Q_OVERFLOW | flags.DELETE_SELF | flags.MOVE_SELF)
            if event.mask & (flags.DELETE_SELF | flags.MOVE_SELF | flags.IGNORED):
                self._watched.clear()  # a folder is gone: all are watched again after the next scan
            name, folder = event.name, self._watched.get(event.wd)
            if about_folder or name in IGNORE_FILES:
                changes.add(ANY_FILE)
            elif name.lower().endswith(self._endings) or is_transcript(name):
                changes.add(ANY_FILE if folder is None else os.path.join(folder, name))
        return changes

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None
        self._watched.clear()
        self._tops.clear()


def _place(folder: str) -> tuple[int, int] | None:
    """Return device and inode of a folder, or None if it is gone."""
    try:
        state = os.lstat(folder)
    except OSError:
        return None
    return state.st_dev, state.st_ino

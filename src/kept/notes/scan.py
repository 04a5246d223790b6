"""Discovery: finds the notes there are, by their names and file states, and tells when to look again."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kept.base.limits import int64, utf8_safe
from kept.base.records import Problem, SourceFile
from kept.base.values import frozen
from kept.errors import PathRefused, WorkspaceError
from kept.notes.workspace import (
    IGNORE_FILES,
    MEMORY_FOLDER,
    PACKAGES,
    ROOT_NOTES,
    Workspace,
    find_name_fault,
    list_names,
)
from kept.sessions.transcript_paths import is_transcript
from kept.storage.contract import Choose, DocumentInfo

if TYPE_CHECKING:
    from inotify_simple import INotify


@frozen
class Scan:
    files: tuple[SourceFile, ...]
    problems: tuple[Problem, ...]
    folders: tuple[str, ...]
    """Every folder that was listed. A watcher has to watch these."""
    only: frozenset[tuple[str, str]] | None = None
    """Source and path of the only files that were looked at, whether they still exist or not; None for all."""


def scan_workspace(workspace: Workspace, *, max_bytes: int) -> Scan:
    """Return the notes of a workspace. Symbolic links are excluded."""
    finder, is_kept = _NoteFinder(workspace, max_bytes, workspace.root), workspace.layout == "kept"
    choose = finder.choose_own if is_kept else finder.choose_in_vault()
    finder.add(workspace.storage.documents.list(choose=choose, on_refused=finder.refuse))
    if is_kept:  # the order in which they are indexed, with long-term memory first
        first = {name: finder.files.pop(name) for name in ROOT_NOTES if name in finder.files}
        finder.files = {**first, **finder.files}
    for extra in workspace.extra_paths:
        finder.find_extra(extra)
    return Scan(tuple(finder.files.values()), tuple(finder.problems), tuple(finder.folders))


@dataclass
class _NoteFinder:
    workspace: Workspace
    max_bytes: int
    base: str
    """Folder of the storage that is listed."""
    files: dict[str, SourceFile] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

    def choose_own(self, folder: str, names: Mapping[str, bool]) -> Iterable[str]:
        chosen = self.choose_notes(folder, names)
        if folder:
            return chosen
        if names.get(MEMORY_FOLDER) is False:
            self.problem(MEMORY_FOLDER, "is no folder, or a symbolic link, which is not followed")
        own = [name for name in ROOT_NOTES if names.get(name) is False]
        return [*own, MEMORY_FOLDER] if names.get(MEMORY_FOLDER) else own

    def choose_notes(self, folder: str, names: Mapping[str, bool]) -> Iterable[str]:
        """Note a folder that is listed, and choose the notes and folders in it."""
        self.folders.append(f"{self.base}/{folder}" if folder else self.base)
        endings = self.workspace.endings
        return [
            name
            for name, is_folder in names.items()
            if name[0] != "." and (name != PACKAGES if is_folder else name.lower().endswith(endings))
        ]

    def choose_in_vault(self) -> Choose:
        from kept.notes.vault import IgnoreRules

        rules = IgnoreRules(self.workspace, report=self.problem)

        def choose(folder: str, names: Mapping[str, bool]) -> Iterable[str]:
            chosen = self.choose_notes(folder, names)
            if not rules.enter(folder, names):
                return chosen
            return [name for name in chosen if not rules.is_ignored(folder, name, is_folder=names[name])]

        return choose

    def find_extra(self, extra: str) -> None:
        storage, self.base = self.workspace.open_extra(extra)
        name = extra[len(self.base) :].lstrip(os.sep)
        folder, _, last = name.rpartition("/")
        if list_names(storage, folder).get(last):
            self.add(storage.documents.list(f"{name}/", choose=self.choose_notes, on_refused=self.refuse))
            return
        try:
            info = storage.documents.find(name)
        except PathRefused:
            self.problem(extra, "extra path is a symbolic link, which is not followed")
            return
        if info is None:
            self.problem(extra, "extra path does not exist")
        elif not self.workspace.is_note_file(name):
            self.problem(extra, "extra path is neither a folder nor Markdown")
        else:
            self.folders.append(os.path.dirname(extra))
            self.add([info])

    def add(self, notes: Iterable[DocumentInfo]) -> None:
        cite, is_own = self.workspace.cite, self.base == self.workspace.root
        for info in notes:
            path, size = info.path, info.size
            absolute = self.base + os.sep + path
            cited = path if is_own else cite(absolute)
            if fault := find_name_fault(cited):
                self.problem(cited, fault)
                continue
            if size > self.max_bytes:
                self.problem(cited, f"{size:,} bytes, more than the limit of {self.max_bytes:,}; not indexed")
                continue
            self.files.setdefault(cited, note_file(cited, absolute, info))

    def refuse(self, path: str, error: WorkspaceError) -> None:
        self.problem(path, error.message.partition(": ")[2].rstrip("."))

    def problem(self, path: str, reason: str) -> None:
        self.problems.append(Problem(utf8_safe(self.workspace.cite(path)), reason))


def note_file(path: str, absolute: str, info: DocumentInfo) -> SourceFile:
    return SourceFile(path, absolute, "memory", info.size, int64(info.modified_ns), int64(info.changed_ns))


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
        watched = set(self._watched.values())
        places = {folder: _place(folder) for folder in watched if os.path.dirname(folder) not in watched}
        self._tops = {folder: place for folder, place in places.items() if place}
        return True

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

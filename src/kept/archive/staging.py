"""Writes many files, each atomically.

Files are written beside their places, synced to disk together, and then renamed. One sync for hundreds of files takes
about as long as one for a single file.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from kept.archive.comparison import FileAction
from kept.archive.tar_stream import TarMember
from kept.durable import create_file
from kept.errors import ArchiveDamaged, WriteFailed
from kept.file_lock import locked
from kept.limits import utf8_safe
from kept.records import Problem
from kept.values import frozen
from kept.workspace.opened import FolderTree

_MAX_FILES = 1_000
_MAX_BYTES = 256_000_000
_LOCK_WAIT_S = 10.0


@frozen
class _StagedFile:
    item: FileAction
    temporary: str


class StagedFiles(AbstractContextManager["StagedFiles"]):
    """Files that are written but not in their places yet. ``problems`` collects those that are left out."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems
        self._files: list[_StagedFile] = []
        self._size = 0
        self._trees: dict[str, FolderTree] = {}

    def __exit__(self, *_: Any) -> None:
        """Remove what is not in its place, after an error."""
        for file in self._files:
            try:
                os.unlink(file.temporary, dir_fd=self._folder(file.item))
            except OSError:
                pass
        for tree in self._trees.values():
            tree.close()

    def add(self, item: FileAction, member: TarMember) -> None:
        """Write a file beside its place. Raise WriteFailed, or ArchiveDamaged if its content is not as expected."""
        # The name is the same in each attempt, so a restore that continues one that was killed leaves no rest of it.
        temporary = f".kept-restore-{hashlib.sha256(item.parts[-1].encode()).hexdigest()[:16]}.tmp"
        try:
            folder = self._folder(item, create=True)
            self._files.append(_StagedFile(item, temporary))
            _write(temporary, folder, item, member)
        except OSError as exc:
            raise WriteFailed(f"{item.path}: could not be written ({exc.strerror}).") from exc
        self._size += member.size
        if len(self._files) >= _MAX_FILES or self._size >= _MAX_BYTES:
            self.commit()

    def commit(self) -> None:
        """Put the files into their places, and return when that is on disk."""
        if not self._files:
            return
        os.sync()  # the contents before their names: a name must never lead to half a file
        while self._files:
            file = self._files[-1]
            try:
                self._put(file)
            except OSError as exc:
                raise WriteFailed(f"{file.item.path}: could not be written ({exc.strerror}).") from exc
            self._files.pop()
        os.sync()
        self._size = 0

    def _put(self, file: _StagedFile) -> None:
        item = file.item
        with _locked(item):
            folder = self._folder(item)
            mode = _mode_of(item.parts[-1], folder)
            if mode is not None and item.action == "new":
                self._problems.append(Problem(utf8_safe(item.path), "was created meanwhile, and is kept"))
                os.unlink(file.temporary, dir_fd=folder)
                return
            if mode is not None:  # a note may be shared on purpose
                os.chmod(file.temporary, mode, dir_fd=folder)
            os.replace(file.temporary, item.parts[-1], src_dir_fd=folder, dst_dir_fd=folder)

    def _folder(self, item: FileAction, *, create: bool = False) -> int:
        tree = self._trees.setdefault(item.folder, FolderTree(item.folder, follow=True))
        return tree.open(item.parts[:-1], create=create)


def _write(temporary: str, folder: int, item: FileAction, member: TarMember) -> None:
    try:
        os.unlink(temporary, dir_fd=folder)
    except FileNotFoundError:
        pass
    digest = hashlib.sha256()
    with create_file(temporary, folder) as out:
        for block in member.blocks():
            digest.update(block)
            out.write(block)
        out.flush()
        os.utime(out.fileno(), ns=(item.record.mtime_ns, item.record.mtime_ns))
    if digest.hexdigest() != item.record.sha256:
        raise ArchiveDamaged(f"{member.name}: changed while the archive was read.", hint="Run the same command again.")


def _locked(item: FileAction) -> AbstractContextManager[object]:
    """Return the lock of a file that is replaced, so that nothing is appended to the old one meanwhile."""
    if item.action == "new":
        return nullcontext()
    path = item.path if item.is_record else item.folder
    return locked(path, wait_s=_LOCK_WAIT_S, purpose="writing here", create=not item.is_record)


def _mode_of(name: str, folder: int) -> int | None:
    """Return the mode of a file, or None if there is none."""
    try:
        return stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) & 0o777
    except FileNotFoundError:
        return None

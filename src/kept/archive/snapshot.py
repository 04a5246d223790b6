"""Files to pack, and one consistent copy of each while other processes write.

Records and the history only grow: a copy ends where the file ended when it was opened. Notes are replaced as a whole by
Kept, and changed in place by some editors: a copy is made again if the note changed meanwhile.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import IO

from kept.archive.member_names import (
    AGENTS,
    KEPT_FOLDER,
    NOTES,
    REMOVED,
    is_agent_record,
    is_log,
    is_note_member,
    is_short,
)
from kept.archive.tar_stream import CHUNK_BYTES
from kept.config import Config
from kept.errors import LockBusy, LockMissing
from kept.file_lock import locked
from kept.limits import int64, is_utf8, utf8_safe
from kept.values import frozen
from kept.workspace.opened import FolderTree
from kept.workspace.scan import scan_workspace
from kept.workspace.workspace import PERSONS_OWN, Workspace

_IN_MEMORY_BYTES = 8 << 20
"""A larger file is copied to a temporary file first."""
_ATTEMPTS = 3
_LOCK_WAIT_S = 1.0
_ANY_SIZE = 1 << 62
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Report = Callable[[str, str], None]
"""Function that is called with the path and the reason of a problem."""


@frozen
class PackedFile:
    """A file to pack: its name in the archive, and where it is."""

    member: str
    folder: str
    parts: tuple[str, ...]
    size: int
    """Size when it was found, for progress."""
    grows: bool
    """True if it is only ever appended to."""

    @property
    def path(self) -> str:
        return os.path.join(self.folder, *self.parts)


@frozen
class FileCopy:
    """Content of a file at one moment."""

    content: IO[bytes]
    size: int
    sha256: str
    mtime_ns: int
    is_torn: bool
    """True if the file changed while it was read, each time that this was tried."""

    def blocks(self) -> Iterator[bytes]:
        self.content.seek(0)
        while block := self.content.read(CHUNK_BYTES):
            yield block


# finding


def find_notes(config: Config, name: str, *, notes_only: bool, report: Report) -> Iterator[PackedFile]:
    """Yield the files of a workspace: notes, the files among them unless ``notes_only``, and Kept's own."""
    workspace = replace(Workspace.of(config), extra_paths=())
    if not notes_only:
        workspace = replace(workspace, endings=("",))  # what every name ends in
    scan = scan_workspace(workspace, max_bytes=_ANY_SIZE)
    for problem in scan.problems:
        report(problem.path, problem.reason)
    paths = {file.path: file.size for file in scan.files}
    for folder in scan.folders:
        _add(paths, workspace, os.path.join(folder, ".keptignore"))
    for own in (".kept.yaml", *(PERSONS_OWN if workspace.layout == "kept" else ())):
        _add(paths, workspace, os.path.join(workspace.root, own))
    for parts, size in _walk(os.path.join(workspace.root, KEPT_FOLDER), report):
        paths["/".join((KEPT_FOLDER, *parts))] = size
    for path in sorted(paths):
        parts = tuple(path.split("/"))
        if is_note_member(parts):
            yield from _packed(f"{NOTES}/{name}/{path}", workspace.root, parts, paths[path], report)


def _add(paths: dict[str, int], workspace: Workspace, absolute: str) -> None:
    try:
        state = os.lstat(absolute)
    except OSError:
        return
    if stat.S_ISREG(state.st_mode):
        paths[workspace.cite(absolute)] = state.st_size


def find_records(folder: str, name: str, *, report: Report, removed: bool = False) -> Iterator[PackedFile]:
    """Yield the conversations and records in the folder of an agent. Derived files are left out."""
    root = REMOVED if removed else AGENTS
    for parts, size in sorted(_walk(folder, report)):
        if is_agent_record(parts):
            member = "/".join((root, name, *parts))
            yield from _packed(member, folder, parts, size, report)


def _packed(member: str, folder: str, parts: tuple[str, ...], size: int, report: Report) -> Iterator[PackedFile]:
    file = PackedFile(member, folder, parts, size, is_log(parts, root=member.partition("/")[0]))
    if is_utf8(member) and is_short(member):
        yield file
    else:
        report(utf8_safe(file.path), "its name is not valid UTF-8 or too long, so it is not in the archive")


def _walk(folder: str, report: Report) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the parts of the path and the size of each regular file below a folder. Links are not followed."""

    def failed(exc: OSError) -> None:
        if not isinstance(exc, FileNotFoundError):
            report(utf8_safe(exc.filename or folder), f"cannot be listed ({exc.strerror})")

    for path, folders, names in os.walk(folder, onerror=failed):
        folders[:] = [name for name in folders if not os.path.islink(os.path.join(path, name))]
        below = os.path.relpath(path, folder)
        start = () if below == os.curdir else tuple(below.split(os.sep))
        for name in names:
            try:
                state = os.lstat(os.path.join(path, name))
            except OSError:
                continue
            if stat.S_ISREG(state.st_mode):
                yield (*start, name), state.st_size


# copying


class FileCopier:
    """Makes copies of files, and keeps the folders on the way open."""

    def __init__(self) -> None:
        self._trees: dict[str, FolderTree] = {}

    def close(self) -> None:
        for tree in self._trees.values():
            tree.close()

    @contextmanager
    def copied(self, file: PackedFile) -> Iterator[FileCopy]:
        """Yield a copy of a file. Raise OSError if it cannot be read, FileNotFoundError if it is gone."""
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as spool:
            handle = self._open(file)
            try:
                yield _copy_record(handle, spool, file.path) if file.grows else _copy_note(handle, spool)
            finally:
                os.close(handle)

    def _open(self, file: PackedFile) -> int:
        tree = self._trees.setdefault(file.folder, FolderTree(file.folder, follow=True))
        handle = os.open(file.parts[-1], _READ, dir_fd=tree.open(file.parts[:-1]))
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError(errno.EINVAL, "not a file")
        return handle


def _copy_record(handle: int, spool: IO[bytes], path: str) -> FileCopy:
    """Copy the content of a file as it was opened. If it ends within a line, wait for the process that writes it."""
    state = os.fstat(handle)
    if path.endswith(".jsonl") and state.st_size and os.pread(handle, 1, state.st_size - 1) != b"\n":
        try:
            with locked(path, wait_s=_LOCK_WAIT_S, purpose="writing to this file", create=False, shared=True):
                state = os.fstat(handle)
        except (LockBusy, LockMissing):
            pass  # a reader of the copy sets a torn line aside
    size, sha256 = _fill(spool, handle, state.st_size)
    return FileCopy(spool, size, sha256, int64(state.st_mtime_ns), size != state.st_size)


def _copy_note(handle: int, spool: IO[bytes]) -> FileCopy:
    for _ in range(_ATTEMPTS):
        before = os.fstat(handle)
        size, sha256 = _fill(spool, handle, _ANY_SIZE)
        after = os.fstat(handle)
        is_torn = (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size) or size != after.st_size
        if not is_torn:
            break
    return FileCopy(spool, size, sha256, int64(after.st_mtime_ns), is_torn)


def _fill(spool: IO[bytes], handle: int, most: int) -> tuple[int, str]:
    """Copy up to ``most`` bytes from the start of a file. Return their number and their hash."""
    spool.seek(0)
    spool.truncate()
    digest = hashlib.sha256()
    size = 0
    while size < most and (block := os.pread(handle, min(CHUNK_BYTES, most - size), size)):
        spool.write(block)
        digest.update(block)
        size += len(block)
    return size, digest.hexdigest()

"""Changes of files that survive a crash.

A file changes only by an atomic write, a durable append, or by cutting off a torn end. New files and folders are
private.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from kept.base.file_lock import locked
from kept.errors import LockBusy, WorkspaceError, WriteFailed

OPEN_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""Flags to open a folder for looking up and changing names, on Linux without the right to list them."""

_TEMPORARY = (".kept-", ".tmp")
"""Beginning and end of the names of temporary files."""
_ZEROS = 1 << 20
"""Bytes that are overwritten at once."""

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def write_atomic(path: str, data: bytes) -> None:
    """Replace a file atomically: write a temporary file beside it, fsync, rename, fsync the folder."""
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Yield a file to write. At the end of the block it replaces ``path`` atomically; after an error it is removed.

    Like `write_atomic`, for more than fits into memory.
    """
    with _opened_parent(path) as folder, replacing_in(folder, os.path.basename(path)) as file:
        yield file


def erase_file(path: str) -> None:
    """Overwrite a file with zeros and remove it, except for text that another name of it (a hard link) keeps."""
    with _opened_parent(path) as folder:
        erase_in(folder, os.path.basename(path))


# in an open folder: only its name is looked up, so a caller that has checked the folder writes into it, even if it is
# renamed meanwhile


@contextmanager
def replacing_in(folder: int, name: str, *, mtime_ns: int = 0, sync: bool = True) -> Iterator[BinaryIO]:
    """Yield a file that replaces ``name`` as in `replacing`.

    ``sync=False`` leaves the fsync of the folder to the caller, who has a journal and syncs the disk once.
    """
    temporary = f"{_TEMPORARY[0]}{os.urandom(8).hex()}{_TEMPORARY[1]}"  # a name with that of ``name`` may be too long
    mode = 0o600
    with suppress(FileNotFoundError):
        state = os.stat(name, dir_fd=folder, follow_symlinks=False)
        mode = state.st_mode & 0o777 if stat.S_ISREG(state.st_mode) else mode
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder)
    try:
        with open(handle, "wb", buffering=1 << 16) as file:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # so `is_abandoned` knows that it is written
            os.fchmod(handle, mode)  # regardless of the umask: the file may be shared on purpose
            yield file
            file.flush()
            if mtime_ns:
                os.utime(handle, ns=(mtime_ns, mtime_ns))
            os.fsync(handle)  # before the rename: a name must never lead to less than the whole
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    if sync:
        sync_folder(folder)


def append_in(folder: int, name: str, data: bytes) -> None:
    """Append to a file and return when the data is on disk. On failure, cut the file back to its old size.

    The caller holds a lock, so the size cannot change meanwhile.
    """
    handle = os.open(name, _APPEND, 0o600, dir_fd=folder)
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, "not a file")
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            os.fsync(handle)
        except OSError:
            os.ftruncate(handle, state.st_size)
            if not state.st_size:
                os.unlink(name, dir_fd=folder)
            raise
    finally:
        os.close(handle)
    if not state.st_size:
        sync_folder(folder)


def replace_erasing_in(folder: int, name: str, data: bytes) -> None:
    """Replace a file, then overwrite what the old one had on disk with zeros, unless another name keeps it."""
    with _opened_to_erase(name, folder) as old:
        with replacing_in(folder, name) as file:
            file.write(data)
        _overwrite(old, names=0)


def erase_in(folder: int, name: str) -> None:
    with _opened_to_erase(name, folder) as old:
        _overwrite(old, names=1)
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
        sync_folder(folder)


def is_temporary(name: str) -> bool:
    """Return whether a file has the name of one that is being written, or that a crash left."""
    return name.startswith(_TEMPORARY[0]) and name.endswith(_TEMPORARY[1])


def is_abandoned(path: str) -> bool:
    """Return whether no process is writing a temporary file: a crash left it."""
    try:
        with locked(path, wait_s=0, purpose="writing this file", create=False):
            return True
    except (LockBusy, WorkspaceError):
        return False


def sync_folder(folder: str | int) -> None:
    """fsync a folder, named or open, so that an entry that was added, renamed or removed survives a power cut."""
    if isinstance(folder, int):  # opened again: a handle of O_PATH cannot be synced
        handle = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    else:
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_private_folder(path: str) -> None:
    """Create a folder that only its owner can read, and its missing parents."""
    path = os.path.abspath(path)
    if os.path.isdir(path):
        return
    make_private_folder(os.path.dirname(path))
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


@contextmanager
def _opened_parent(path: str) -> Iterator[int]:
    """Yield the open folder of a file, created if it is missing. Translate errors into WriteFailed."""
    handle = None
    try:
        folder = os.path.dirname(os.path.abspath(path))
        make_private_folder(folder)
        handle = os.open(folder, OPEN_FOLDER)
        yield handle
    except OSError as exc:
        raise WriteFailed(f"{path}: could not be written ({exc.strerror}).") from exc
    finally:
        if handle is not None:
            os.close(handle)


@contextmanager
def _opened_to_erase(name: str, folder: int) -> Iterator[int | None]:
    """Yield a file that is open to be overwritten, or None if there is none or it is read-only."""
    try:
        handle = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


def _overwrite(handle: int | None, *, names: int) -> None:
    """Overwrite a file with zeros, unless it has more names than ``names``."""
    if handle is None:
        return
    state = os.fstat(handle)
    if not stat.S_ISREG(state.st_mode) or state.st_nlink > names:
        return
    for start in range(0, state.st_size, _ZEROS):
        os.pwrite(handle, bytes(min(_ZEROS, state.st_size - start)), start)
    os.fsync(handle)


def read_if_possible(path: str) -> bytes:
    """Return the bytes of a file, or none if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""

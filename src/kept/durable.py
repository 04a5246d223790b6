"""The only ways to change a file that matters: an atomic write, a durable append, and cutting off a torn end.

New files and folders are private. With ``dir_fd``, only the last part of a path is looked up, in that open folder; the
rest is for messages. So a caller that has checked a folder writes into it, even if it is renamed meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from kept.errors import WriteFailed

OPEN_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""Flags to open a folder for looking up and changing names, on Linux without the right to list them."""

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def write_atomic(path: str, data: bytes, *, dir_fd: int | None = None, mtime_ns: int | None = None) -> None:
    """Replace a file atomically: write a temporary file beside it, fsync, rename, fsync the folder."""
    name = os.path.basename(path)
    with _reporting(path), _folder_of(path, dir_fd) as folder:
        temporary = f".kept-{os.urandom(8).hex()}.tmp"  # not derived from the name, which may have the maximum length
        try:
            _write_new(temporary, folder, _mode_of(name, folder), data, mtime_ns)
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            _remove_quietly(temporary, folder)
            raise
        sync_folder(folder)


def append_durably(path: str, data: bytes, *, dir_fd: int | None = None, break_links: bool = False) -> None:
    """Append to a file and return when the data is on disk. On failure, cut the file back to its old size.

    The caller holds a lock, so the size cannot change meanwhile. With ``break_links``, a file that has other names
    (hard links) is replaced by a longer copy, so that the other names keep the old text.
    """
    name = os.path.basename(path)
    with _reporting(path), _folder_of(path, dir_fd) as folder:
        handle, is_new = _open_to_append(name, folder)
        try:
            state = os.fstat(handle)
            if not stat.S_ISREG(state.st_mode):
                raise OSError(errno.EINVAL, "not a file")
            if break_links and state.st_nlink > 1:
                write_atomic(path, _read_all(name, folder) + data, dir_fd=folder)
                return
            _append_or_cut_back(handle, state.st_size, data)
        except OSError:
            if is_new:
                _remove_quietly(name, folder)
            raise
        finally:
            os.close(handle)
        if is_new:
            sync_folder(folder)


def cut_durably(path: str, size: int) -> None:
    """Truncate a file and return when that is on disk. The caller holds a lock and has saved the removed bytes."""
    with _reporting(path):
        handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.ftruncate(handle, size)
            os.fsync(handle)
        finally:
            os.close(handle)


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


def make_folder_in(folder: int, name: str) -> None:
    """Create a private folder in an open one, unless it exists, and return when it is on disk."""
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
    except FileExistsError:
        return
    sync_folder(folder)


@contextmanager
def _folder_of(path: str, dir_fd: int | None) -> Iterator[int]:
    """Yield the open folder of a file. Without ``dir_fd``, create the folder if it is missing."""
    if dir_fd is not None:
        yield dir_fd
        return
    folder = os.path.dirname(os.path.abspath(path))
    make_private_folder(folder)
    handle = os.open(folder, OPEN_FOLDER)
    try:
        yield handle
    finally:
        os.close(handle)


@contextmanager
def _reporting(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise WriteFailed(f"{path}: could not be written ({exc.strerror}).") from exc


def _write_new(name: str, folder: int, mode: int, data: bytes, mtime_ns: int | None) -> None:
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder)
    try:
        os.fchmod(handle, mode)  # regardless of the umask: the file may be shared on purpose
        _write_all(handle, data)
        if mtime_ns is not None:
            os.utime(handle, ns=(mtime_ns, mtime_ns))
        os.fsync(handle)
    finally:
        os.close(handle)


def _open_to_append(name: str, folder: int) -> tuple[int, bool]:
    """Return the handle, and whether the file is new."""
    try:
        return os.open(name, _APPEND, dir_fd=folder), False
    except FileNotFoundError:
        return os.open(name, _APPEND | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder), True


def _append_or_cut_back(handle: int, size: int, data: bytes) -> None:
    try:
        _write_all(handle, data)
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, size)
        raise


def _read_all(name: str, folder: int) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(name, flags, dir_fd=folder), "rb") as file:
        return file.read()


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _mode_of(name: str, folder: int) -> int:
    try:
        state = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return 0o600
    return state.st_mode & 0o777 if stat.S_ISREG(state.st_mode) else 0o600


def _remove_quietly(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        pass

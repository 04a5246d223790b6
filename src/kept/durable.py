"""The only ways a file that matters is changed: an atomic write, a durable append, and cutting off a torn end.

What they make is private.
"""

from __future__ import annotations

import os

from kept.errors import WriteFailed


def write_atomic(absolute: str, data: bytes) -> None:
    """The whole file or nothing: a temporary file beside it, fsync, rename, fsync of the folder."""
    folder = os.path.dirname(absolute)
    temporary = os.path.join(folder, f".{os.path.basename(absolute)}.{os.urandom(6).hex()}.tmp")
    try:
        make_private_folder(folder)
        mode = _mode_of(absolute)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            os.fchmod(handle, mode)  # the umask has no say where a file was shared on purpose
            _write_all(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, absolute)
        sync_folder(folder)
    except OSError as exc:
        _remove_quietly(temporary)
        raise WriteFailed(f"{absolute}: could not be written ({exc.strerror}).") from exc


def append_durably(absolute: str, data: bytes) -> None:
    """Adds to the end of a file and returns when it is on disk. On failure the file is cut back to what it was.

    The caller holds a lock, so the size cannot change in between.
    """
    folder = os.path.dirname(absolute)
    try:
        make_private_folder(folder)
        is_new = not os.path.exists(absolute)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(absolute, flags, 0o600)
        try:
            before = os.fstat(handle).st_size
            try:
                _write_all(handle, data)
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, before)
                if is_new:
                    os.unlink(absolute)
                raise
        finally:
            os.close(handle)
        if is_new:
            sync_folder(folder)
    except OSError as exc:
        raise WriteFailed(f"{absolute}: could not be written ({exc.strerror}).") from exc


def cut_durably(absolute: str, size: int) -> None:
    """Cuts a file back and returns when that is on disk. The caller holds a lock and has kept what is cut off."""
    try:
        handle = os.open(absolute, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.ftruncate(handle, size)
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as exc:
        raise WriteFailed(f"{absolute}: could not be written ({exc.strerror}).") from exc


def sync_folder(folder: str) -> None:
    """Makes a name that was added, changed or removed last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_private_folder(path: str) -> None:
    """A folder that only its owner can look into, and so every folder above it that had to be made."""
    path = os.path.abspath(path)
    if os.path.isdir(path):
        return
    make_private_folder(os.path.dirname(path))
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _mode_of(absolute: str) -> int:
    try:
        return os.stat(absolute).st_mode & 0o777
    except FileNotFoundError:
        return 0o600


def _remove_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
